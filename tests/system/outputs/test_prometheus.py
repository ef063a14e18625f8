"""A real Prometheus scrapes the exporter: what it makes of a fleet, of a dead worker, of TLS and passwords."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack

import bcrypt
import pytest

from grafana.preview import interpolated
from support.dashboards import targets
from support.exporter import certificates, sample, serving
from support.prometheus import FIRST_SAMPLE_S, running_prometheus
from tpumon.model import Distribution
from tpumon.outputs.metrics import METRICS

pytestmark = pytest.mark.real

WORKERS = ("w0", "w1", 'odd "name"\\\n')


@pytest.fixture(scope="module")
def exporters(tmp_path_factory):
    """By job: `plain`; `mutual`, which wants a client certificate; `users`, which wants a password."""
    files = certificates(tmp_path_factory.mktemp("certificates"))
    tls = "cert_file: server.crt, key_file: server.key"
    password = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    mutual, users = files / "mutual.yml", files / "users.yml"
    mutual.write_text(
        f"tls_server_config: {{{tls}, client_ca_file: ca.crt, client_auth_type: RequireAndVerifyClientCert}}"
    )
    users.write_text(f"tls_server_config: {{{tls}}}\nbasic_auth_users: {{prometheus: '{password}'}}")
    with ExitStack() as stack:
        started = {
            "plain": stack.enter_context(serving(*WORKERS)),
            "mutual": stack.enter_context(serving("w0", web_config=mutual)),
            "users": stack.enter_context(serving("w0", web_config=users)),
        }
        for output in started.values():
            output.add(sample("w0", idle_ratio=0.0, step_durations_s=(0.004, 0.02)))
        for worker in WORKERS[1:]:
            started["plain"].add(sample(worker))
        yield started, files


@pytest.fixture(scope="module")
def prometheus(exporters, tmp_path_factory):
    started, files = exporters
    ca = {"ca_file": str(files / "ca.crt")}
    known = ca | {"cert_file": str(files / "client.crt"), "key_file": str(files / "client.key")}

    def job(name, output, **more):
        return {"job_name": name, "static_configs": [{"targets": [started[output].address]}], **more}

    def login(password):
        return {"basic_auth": {"username": "prometheus", "password": password}}

    https = {"scheme": "https", "tls_config": ca}
    jobs = [
        job("plain", "plain"),
        job("mutual", "mutual", scheme="https", tls_config=known),
        job("mutual-without", "mutual", **https),
        job("users", "users", **https, **login("secret")),
        job("users-wrong", "users", **https, **login("wrong")),
        job("clear", "users"),
        {"job_name": "probe", "metrics_path": "/probe", "params": {"target": ["w1"]},
         "static_configs": [{"targets": [started["plain"].address]}]},
    ]  # fmt: skip
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), jobs) as server:
        server.wait_for("count(up) == 7")
        yield server


def test_every_worker_is_there(prometheus):
    """Whatever it is called, with the value that was sampled; a measured zero is 0."""
    values = prometheus.values('tpu_mxu_utilization_ratio{job="plain"}')
    assert values == dict.fromkeys(WORKERS, 0.425)
    assert prometheus.values('tpu_idle_ratio{job="plain"}') == {"w0": 0.0}
    assert len(prometheus.query('histogram_quantile(0.5, tpu_step_duration_seconds_bucket{job="plain"})')) == 1


def test_what_metrics_are_is_known(prometheus):
    """Help, type and unit of each came across; OpenMetrics is what was agreed on, for only it has units."""
    wait = prometheus.api("targets/metadata", match_target='{job="plain"}')
    told = {each["metric"]: each for each in wait}
    for metric in METRICS:
        name = metric.name.removesuffix("_total")
        assert told[name]["type"] == metric.kind
        assert told[name]["help"] == metric.help
    assert told["tpu_idle_ratio"]["unit"] == "ratio"
    assert told["tpu_step_time_seconds"]["unit"] == "seconds"


def test_a_dead_workers_figures_become_stale(exporters, prometheus):
    """At the next scrape, not minutes later; that it is down stays to be seen, and it comes back."""
    output = exporters[0]["plain"]
    dead = 'tpu_mxu_utilization_ratio{job="plain",worker="w1"}'
    assert prometheus.query(dead)
    output.add(sample("w1", reason="unavailable"))
    prometheus.wait_until_gone(dead, 30)
    assert prometheus.values('tpumon_target_up{job="plain"}') == {WORKERS[0]: 1.0, "w1": 0.0, WORKERS[2]: 1.0}
    assert prometheus.values('tpumon_sample_errors_total{job="plain"} > 0', "reason") == {"unavailable": 1.0}
    assert prometheus.values('time() - tpumon_target_last_success_timestamp_seconds{job="plain",worker="w1"}')
    output.add(sample("w1", time_unix_s=time.time()))
    prometheus.wait_for(dead, 30)


@pytest.mark.parametrize("job", ["mutual", "users"])
def test_who_is_known_is_served(prometheus, job):
    """By client certificate, by user and password."""
    prometheus.wait_for(f'up{{job="{job}"}} == 1')
    assert prometheus.values(f'tpu_mxu_utilization_ratio{{job="{job}"}}') == {"w0": 0.425}


@pytest.mark.parametrize(
    ("job", "error"),
    [("mutual-without", "certificate required"), ("users-wrong", "401 Unauthorized"), ("clear", "EOF|reset|malformed")],
)
def test_who_is_not_is_refused(prometheus, job, error):
    """Without the certificate, with a wrong password, in clear text."""
    (target,) = prometheus.targets(job)
    assert target["health"] == "down"
    assert any(part in target["lastError"] for part in error.split("|")), target["lastError"]
    assert not prometheus.query(f'tpumon_build_info{{job="{job}"}}')


def test_a_probe_is_one_worker(prometheus):
    """As scraped with `metrics_path: /probe`."""
    prometheus.wait_for('up{job="probe"} == 1', FIRST_SAMPLE_S)
    assert set(prometheus.values('tpumon_target_up{job="probe"}')) == {"w1"}


def test_native_histograms_of_steps(tmp_path):
    """Where Prometheus takes them: one series a worker, the same quantiles; all else is there as in text."""
    chance = random.Random(1)
    with serving(*WORKERS) as output:
        output.add(sample("w0", step_durations_s=tuple(chance.uniform(0.05, 0.1) for _ in range(2000))))
        between = {"collective": Distribution(bounds=(0.001, 0.004), counts=(1, 2, 3), total=1.5)}
        output.add(sample("w1", step_durations_s=(0.0005, 0.02, 200.0), runtime_latencies=between))
        (tmp_path / "text").mkdir()
        jobs = [{"job_name": "tpumon", "static_configs": [{"targets": [output.address]}]}]
        with running_prometheus(tmp_path, jobs, options=["--enable-feature=native-histograms"]) as native:
            native.wait_for("up == 1")
            steps = "tpu_step_duration_seconds"
            for ratio, value in ((0.5, 0.075), (0.9, 0.095)):
                told = native.values(f"histogram_quantile({ratio}, {steps})")
                assert told["w0"] == pytest.approx(value, rel=0.05)
            assert native.values(f"histogram_quantile(0.5, {steps})")["w1"] == pytest.approx(0.02, rel=0.19)
            assert native.values(f"histogram_count({steps})") == {"w0": 2000, "w1": 3}
            assert native.values(f"histogram_sum({steps})")["w1"] == pytest.approx(200.0205)
            assert native.values(f"histogram_fraction(0, 0.001, {steps})")["w1"] == pytest.approx(1 / 3, abs=0.01)
            assert not native.series(f"{steps}_bucket")
            with running_prometheus(tmp_path / "text", jobs) as plain:
                plain.wait_for("up == 1")
                told = [server.api("label/__name__/values") for server in (native, plain)]
                classic = {f"{steps}{suffix}" for suffix in ("_bucket", "_count", "_sum")}
                both = set(told[0]) - {steps}
                assert both == {name for name in told[1] if not name.endswith("_created")} - classic
                output.add(sample("w0", step_durations_s=(0.06,) * 2000))
                for panel, low, high in (("Step time quantiles", 0.055, 0.07), ("Steps seen", 500, 20_000)):
                    (asked, *_) = [each.expr for each in targets() if each.panel["title"] == panel]
                    expr = interpolated(asked, job=".*", step_s=60, scrape_s=1, range_s=60)
                    for server in (native, plain):
                        assert low < float(server.wait_for(f"({expr}) > 0")[0]["value"][1]) < high, expr
                for name in ("tpu_mxu_utilization_ratio", "tpumon_samples_total", "tpumon_target_up"):
                    assert native.values(name) == plain.values(name)
                buckets = native.values("tpu_runtime_megascale_collective_seconds_bucket", "le")
                assert buckets == {"0.001": 1, "0.004": 3, "+Inf": 6}
            assert not native.log


def test_nothing_is_said_against_the_page(exporters, prometheus):
    """No duplicate, out-of-order or unparsable sample in Prometheus' log."""
    assert prometheus.values('scrape_samples_scraped{job="plain"} > 0', "job")
    assert not prometheus.log
