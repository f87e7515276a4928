module forebay.dev/parts/headscale

go 1.26.6

require github.com/juanfont/headscale v0.29.3
