"""Where a setting comes from, and what a wrong one says."""

import pytest

from forebay.cli.commands import COMMANDS
from forebay.cli.parser import parse
from forebay.settings import Settings, SettingsError, all_settings, read_settings
from forebay.wiring.run_settings import check_settings, unknown_variables


def test_an_option_wins_over_the_environment_which_wins_over_the_default():
    environment = {"FOREBAY_LOG_LEVEL": "debug", "FOREBAY_CONTEXT": "from-env"}

    settings = read_settings({"context": "from-option", "log_level": None}, environment)

    assert settings == Settings(context="from-option", log_level="debug")
    assert settings.log_format == "auto"


def test_an_empty_variable_counts_as_unset():
    assert read_settings({}, {"FOREBAY_LOG_LEVEL": ""}) == Settings()


@pytest.mark.parametrize(
    ("options", "environment", "sentence"),
    [
        pytest.param(
            {"log_level": "loud"},
            {},
            "--log-level is 'loud'; it takes one of: debug, info, warning, error.",
            id="option",
        ),
        pytest.param(
            {},
            {"FOREBAY_LOG_FORMAT": "xml"},
            "FOREBAY_LOG_FORMAT is 'xml'; it takes one of: auto, text, json.",
            id="variable",
        ),
    ],
)
def test_a_wrong_value_names_where_it_came_from_and_what_would_do(options, environment, sentence):
    with pytest.raises(SettingsError) as caught:
        read_settings(options, environment)
    assert str(caught.value) == sentence


def test_every_setting_says_what_it_means():
    assert all(setting.description.endswith(".") for setting in all_settings())


def test_everything_that_is_wrong_is_said_at_once():
    with pytest.raises(SettingsError) as caught:
        read_settings({"log_level": "loud", "budgets": "maybe"}, {"FOREBAY_LOG_FORMAT": "xml"})
    assert [word in str(caught.value) for word in ("--log-level", "--budgets", "FOREBAY_LOG_FORMAT")] == [True] * 3

    wrong = Settings(idle_delay="soon", max_gpu_price="-1", web_address="nowhere", reconcile_interval="0s")
    with pytest.raises(SettingsError) as caught:
        check_settings(wrong)
    for part in (
        "--idle-delay",
        "--max-gpu-price",
        "--web-address: 'nowhere' is not an address",
        "--reconcile-interval",
    ):
        assert part in str(caught.value)
    check_settings(Settings())


def test_a_dry_run_is_asked_for_with_or_without_a_value():
    def dry_run(*options):
        return parse(COMMANDS, ["run", *options], {})[2].dry_run

    assert [dry_run(), dry_run("--dry-run"), dry_run("--dry-run=off"), dry_run("--dry-run", "--budgets", "off")] == [
        "off",
        "on",
        "off",
        "on",
    ]


def test_a_variable_that_no_setting_has_is_told_with_the_nearest_one():
    environment = {"FOREBAY_IDLE_DELY": "5m", "FOREBAY_COFFEE": "1", "FOREBAY_IDLE_DELAY": "5m", "PATH": "/bin"}

    assert unknown_variables(environment) == [
        "FOREBAY_COFFEE is no setting and has no effect",
        "FOREBAY_IDLE_DELY is no setting and has no effect; did you mean FOREBAY_IDLE_DELAY?",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "FOREBAY_SERVICE_HOST",
        "FOREBAY_SERVICE_PORT_METRICS",
        "FOREBAY_PORT",
        "FOREBAY_PORT_8443_TCP_ADDR",
        "FOREBAY_GPU_SERVICE_HOST",
        "FOREBAY_BOX_GPU_COUNT",
        "FOREBAY_BOX_SCALE_UP_ENDPOINT",
    ],
)
def test_variables_of_services_and_machines_are_no_mistakes(name):
    assert unknown_variables([name]) == []


def test_two_pages_at_one_address_are_named():
    settings = Settings(web_address=":8080", metrics_bind_address=":8443", log_server_address=":8443")
    with pytest.raises(SettingsError) as caught:
        check_settings(settings)
    assert str(caught.value) == (
        "--health-server-address and --web-address are both :8080: choose another port for one of them; "
        "--metrics-bind-address and --log-server-address are both :8443: choose another port for one of them"
    )


@pytest.mark.parametrize(
    "settings",
    [
        Settings(health_server_address="127.0.0.1:8080", metrics_bind_address="127.0.0.1:8080"),
        Settings(health_server_address="127.0.0.1:0", web_address="127.0.0.1:0", metrics_bind_address="127.0.0.1:0"),
        Settings(web_address="127.0.0.1:8443", metrics_bind_address="127.0.0.2:8443"),
    ],
)
def test_plain_metrics_beside_the_probes_any_free_port_and_other_hosts_are_fine(settings):
    check_settings(settings)
