// Command talosval runs Talos' own machinery: it makes the secrets of a cluster and validates machine configs.
//
//	talosval secrets
//	talosval validate cloud|metal FILE...
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"gopkg.in/yaml.v3"
)

// mode is what the validation asks about the machine that a config is for.
type mode struct {
	name    string
	install bool
}

func (m mode) String() string        { return m.name }
func (m mode) RequiresInstall() bool { return m.install }
func (m mode) InContainer() bool     { return false }

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "secrets":
		return newSecrets()
	case len(args) > 2 && args[0] == "validate":
		return validate(mode{args[1], args[1] == "metal"}, args[2:])
	}
	return fmt.Errorf("usage: talosval secrets | talosval validate cloud|metal FILE...")
}

func newSecrets() error {
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersionCurrent)
	if err != nil {
		return err
	}
	encoder := yaml.NewEncoder(os.Stdout)
	defer encoder.Close()
	return encoder.Encode(bundle)
}

func validate(m mode, files []string) error {
	bad := 0
	for _, file := range files {
		loaded, err := configloader.NewFromFile(file)
		if err != nil {
			fmt.Printf("%s: cannot be read: %s\n", file, err)
			bad++
			continue
		}
		warnings, err := loaded.Validate(m)
		for _, warning := range warnings {
			fmt.Printf("%s: warning: %s\n", file, warning)
		}
		if err != nil {
			fmt.Printf("%s: %s\n", file, err)
			bad++
			continue
		}
		fmt.Printf("%s: valid (%d documents)\n", file, len(loaded.Documents()))
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d not valid", bad, len(files))
	}
	return nil
}
