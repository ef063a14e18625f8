"""What Helm makes of deploy/helm and kustomize of deploy/kubernetes: the same objects, as Kubernetes takes them."""

from __future__ import annotations

import json
import os
import re
from itertools import product

import pytest
import yaml

from support import REPOSITORY
from support.deploy import KUBERNETES, VERSIONS, manifest, schemas_of_kubernetes
from support.helm import CHART, OPERATOR, chart, helm, kustomized, refusal, rendered, run
from support.prometheus import promtool
from tpumon import __version__

pytestmark = pytest.mark.real

ANNOTATION = 262_144
"""Bytes in which `kubectl apply` must be able to note an object."""

GUARDED = {"webConfig": "tpumon-web"}
PLACED = {
    "env": [{"name": "TPUMON_INTERVAL", "value": "5"}],
    "nodeSelector": {"pool": "a"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "priorityClassName": "system-node-critical",
}
ALL = {
    "imagePullSecrets": [{"name": "registry"}],
    "labels": {"release": "kube-prometheus-stack"},
    "daemonset": GUARDED | PLACED | {"root": False, "serverMetrics": ["http://127.0.0.1:8000/metrics"]},
    "fleet": GUARDED | PLACED | {"storage": "", "from": ["dns:tpumon.training:10466"], "args": ["--sustained", "5"]},
    "central": GUARDED | PLACED | {"enabled": True, "targets": [{"targets": ["a:9999"], "labels": {"slice": "0"}}]},
    "monitoring": {"podMonitoring": True, "runbooks": "https://git.example.org/runbooks/"},
    "networkPolicy": {"enabled": True},
}


@pytest.fixture(scope="module")
def plain():
    """With an image, and else the values as they are."""
    return named(rendered())


@pytest.fixture(scope="module")
def full():
    """With all that can be asked for."""
    return named(rendered(**ALL))


def named(objects):
    by_name = {(made["kind"], made["metadata"]["name"]): made for made in objects}
    assert len(by_name) == len(objects)
    return by_name


def pods(objects):
    """The pods of a release, by name."""
    return {
        name: made["spec"]["template"] for (kind, name), made in objects.items() if kind in {"DaemonSet", "Deployment"}
    }


def without_release(value):
    """An object without what tells releases and namespaces apart."""
    if isinstance(value, dict):
        release = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart", "namespace"}
        return {key: without_release(each) for key, each in value.items() if key not in release}
    return [without_release(each) for each in value] if isinstance(value, list) else value


def overlay(directory, **more):
    """The objects of deploy/kubernetes with further settings of a kustomization."""
    there = os.path.relpath(KUBERNETES.resolve(), directory.resolve())
    for key, paths in more.items():
        more[key] = [f"{there}/{path}" for path in paths] if key == "components" else paths
    (directory / "kustomization.yaml").write_text(json.dumps({"resources": [there], **more}))
    done = run("kubectl", "kustomize", str(directory))
    assert done.returncode == 0, done.stderr
    return named(list(yaml.safe_load_all(done.stdout)))


def test_the_chart_is_what_kustomize_makes(plain):
    """Exporters and the fleet's process, wired; PodMonitor, rules, dashboards. Only the namespace is not Helm's."""
    objects = named(kustomized())
    del objects["Namespace", "tpumon"]

    assert without_release(list(plain.values())) == without_release([objects[key] for key in plain])
    assert plain.keys() == objects.keys()


@pytest.mark.parametrize("name", ["namespace", ".", "fleet", "central"])
def test_kustomize_makes_what_kubernetes_expects(name):
    objects = [made for made in kustomized(name) if "monitoring." not in made["apiVersion"]]

    assert objects
    for version, made in product(VERSIONS, objects):
        schemas_of_kubernetes().validate(made, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_helm_makes_what_kubernetes_expects(plain, full, version):
    checked = [made for made in (*plain.values(), *full.values()) if "monitoring." not in made["apiVersion"]]

    assert {made["kind"] for made in checked} > {"DaemonSet", "Deployment", "NetworkPolicy", "PersistentVolumeClaim"}
    for made in checked:
        schemas_of_kubernetes().validate(made, version, strict=True)


def test_helm_finds_no_fault():
    done = run("helm", "lint", "--strict", str(CHART))

    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout
    assert chart()["appVersion"] == chart()["version"] == __version__


def test_without_root_the_chart_and_the_component_agree(tmp_path):
    """No path of the node."""
    made = named(rendered(daemonset={"root": False}))["DaemonSet", "tpumon"]
    wanted = overlay(tmp_path, components=["unprivileged"])["DaemonSet", "tpumon"]

    for one in (made, wanted):
        one["spec"]["template"]["spec"]["volumes"].sort(key=lambda volume: volume["name"])
    assert without_release(made) == without_release(wanted)
    assert made["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    assert "hostPath" not in str(made)


def test_the_namespace_keeps_its_pod_security():
    """Whoever applies central/ after the DaemonSet, or the other way round, writes the same."""
    namespaces = [named(kustomized(name))["Namespace", "tpumon"] for name in (".", "central")]

    assert namespaces == [manifest("namespace/namespace")] * 2
    assert namespaces[0]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}


def test_the_central_one_is_the_manifest_s():
    """With targets, and the exporters' and the fleet's parts away."""
    groups = json.loads((KUBERNETES / "central" / "targets.json").read_text())
    off = {"enabled": False}
    values = {"central": {"enabled": True, "targets": groups}, "daemonset": off, "fleet": off, "monitoring": off}
    made, wanted = named(rendered(**values)), named(kustomized("central"))
    del wanted["Namespace", "tpumon"]

    for objects in (made, wanted):
        config = objects["ConfigMap", "tpumon-targets"]
        config["data"] = json.loads(config["data"]["targets.json"])
        config["metadata"].pop("labels", None)
    assert without_release(made) == without_release(wanted)


def test_the_fleet_s_process_reads_what_is_there():
    """The DaemonSet's pods by their Service; further exporters; never nothing."""

    def source(release="tpumon", **values):
        made = pods(named(rendered(release, **values)))
        (args,) = [made[name]["spec"]["containers"][0]["args"] for name in made if name.endswith("-fleet")]
        return args[args.index("--from") + 1]

    more = ["dns:tpumon.training:10466", "https://tpu-vm-0:10466"]
    assert source() == "dns:tpumon-headless:10466"
    assert source("east") == "dns:east-tpumon-headless:10466"
    assert source(fleet={"from": more}) == ",".join(["dns:tpumon-headless:10466", *more])
    assert source(fleet={"from": more}, daemonset={"enabled": False}) == ",".join(more)
    assert "name the exporters" in refusal(daemonset={"enabled": False})


def test_two_releases_in_a_namespace_do_not_collide():
    """No object of one is the other's, nor does a selector of one find a pod of the other."""
    central = {"central": {"enabled": True}, "networkPolicy": {"enabled": True}}
    first, second = named(rendered(**central)), named(rendered("east", **central, monitoring={"enabled": False}))
    selectors = [
        (made["spec"].get("podSelector") or made["spec"]["selector"])
        for kind in ("Service", "DaemonSet", "Deployment", "NetworkPolicy")
        for (its, _), made in second.items()
        if its == kind
    ]

    assert not first.keys() & second.keys()
    assert len(selectors) == 7
    labels = [pod["metadata"]["labels"] for pod in pods(first).values()]
    for selector, found in product(selectors, labels):
        assert not selector.get("matchLabels", selector).items() <= found.items()
    volumes = json.dumps([pod["spec"]["volumes"] for pod in pods(second).values()])
    assert not set(re.findall(r'"(?:claimName|name)": "(tpumon-[\w-]+)"', volumes))


def test_placement_reaches_every_pod(full):
    """Where to run, how important, with which image's secrets and environment."""
    assert pods(full).keys() == {"tpumon", "tpumon-fleet", "tpumon-central"}
    for pod in pods(full).values():
        spec = pod["spec"]
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        assert {key: spec[key] for key in PLACED if key != "env"} == {k: v for k, v in PLACED.items() if k != "env"}
        assert spec["containers"][0]["env"] == PLACED["env"]


def test_labels_reach_all_objects_and_pods(full, tmp_path):
    """So that kube-prometheus-stack, which selects by its release, finds PodMonitor and rules; with kustomize, too."""
    label = ("release", "kube-prometheus-stack")

    for made in (*full.values(), *pods(full).values()):
        assert label in made["metadata"]["labels"].items()
        assert label not in made.get("spec", {}).get("selector", {}).get("matchLabels", {}).items()
    text = (KUBERNETES / "kustomization.yaml").read_text()
    commented = yaml.safe_load("\n".join(line[2:] for line in text.rpartition("label:\n")[2].splitlines()))
    by_kustomize = overlay(tmp_path, **commented)
    for kind in ("PodMonitor", "PrometheusRule"):
        assert label in by_kustomize[kind, "tpumon"]["metadata"]["labels"].items()


def test_a_guarded_port_is_probed_without_a_page(full, plain):
    """With --web-config, /-/healthy would answer 401, and Kubernetes would restart tpumon endlessly."""
    for pod in pods(full).values():
        (container,) = pod["spec"]["containers"]
        args, mounts = container["args"], {each["name"]: each for each in container["volumeMounts"]}
        assert args[args.index("--web-config") + 1] == f"{mounts['web']['mountPath']}/web.yml"
        assert {"name": "web", "secret": {"secretName": "tpumon-web"}} in pod["spec"]["volumes"]
        for probe in ("livenessProbe", "readinessProbe"):
            assert "httpGet" not in container[probe]
            assert container[probe]["tcpSocket"] == {"port": "tpumon"}
    for pod in pods(plain).values():
        assert pod["spec"]["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/-/healthy"


def test_options_of_values_come_last(full):
    args = {name: pod["spec"]["containers"][0]["args"] for name, pod in pods(full).items()}

    assert args["tpumon"][-4:-2] == ["--server-metrics", "http://127.0.0.1:8000/metrics"]
    assert args["tpumon-fleet"][-2:] == ["--sustained", "5"]


def test_the_network_policy_is_for_what_has_a_network_of_its_own(full):
    """Kubernetes applies none to pods in the node's network."""
    policy = full["NetworkPolicy", "tpumon"]["spec"]
    (names,) = (each["values"] for each in policy["podSelector"]["matchExpressions"])
    (rule,) = policy["ingress"]

    for name, pod in pods(full).items():
        chosen = pod["metadata"]["labels"]["app.kubernetes.io/name"] in names
        assert chosen is not pod["spec"].get("hostNetwork", False), name
    assert rule["ports"] == [{"port": "tpumon", "protocol": "TCP"}]
    assert rule["from"], "an empty list would be everybody"


def test_objects_of_an_operator_are_made_where_there_is_one():
    """Or where they are asked for; nothing is made twice in a cluster that has them of another release."""
    kinds = {"PodMonitor", "PrometheusRule", "ClusterPodMonitoring"}

    def made(*, knows=OPERATOR, **monitoring):
        return {one["kind"] for one in rendered(knows=knows, monitoring=monitoring)} & kinds

    assert made() == {"PodMonitor", "PrometheusRule"}
    assert made(knows=()) == set()
    assert made(knows=(), podMonitor=True) == {"PodMonitor"}
    assert made(prometheusRule=False, podMonitoring=True) == {"PodMonitor", "ClusterPodMonitoring"}
    off = rendered(monitoring={"enabled": False, "podMonitor": True, "podMonitoring": True})
    assert {one["kind"] for one in off} == {"DaemonSet", "Deployment", "PersistentVolumeClaim", "Service"}


def test_google_s_object_and_settings_of_the_endpoint(full):
    guarded = {"scheme": "https", "basicAuth": {"username": {"name": "tpumon-web", "key": "user"}}}
    monitor = named(rendered(monitoring={"endpoint": guarded, "interval": "30s"}))["PodMonitor", "tpumon"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    google = without_release(full["ClusterPodMonitoring", "tpumon"])

    assert endpoint.items() >= (guarded | {"interval": "30s", "port": "tpumon"}).items()
    del google["metadata"]["labels"]["release"]
    assert google["spec"]["endpoints"][0].pop("interval") == "15s"
    wanted = manifest("podmonitoring")
    del wanted["spec"]["endpoints"][0]["interval"]
    assert google == wanted


def test_dashboards_are_small_enough_to_be_applied(plain, full):
    """One ConfigMap each: `kubectl apply` notes the whole object in an annotation of it."""
    for objects in (plain, full, named(kustomized())):
        boards = [made for (kind, name), made in objects.items() if kind == "ConfigMap" and "-dashboard-" in name]
        assert {name for made in boards for name in made["data"]} == {
            path.name for path in (REPOSITORY / "grafana" / "dashboards").glob("*.json")
        }
        for made in boards:
            assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
            assert len(json.dumps(made, ensure_ascii=False).encode()) < ANNOTATION
            (text,) = made["data"].values()
            assert json.loads(text)["uid"].startswith("tpumon-")


def test_rules_lead_to_the_given_runbooks(full, plain, tmp_path):
    """And Prometheus understands them as Helm writes them."""

    def links(objects):
        groups = objects["PrometheusRule", "tpumon"]["spec"]["groups"]
        return [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"] if "alert" in rule]

    pages = [link.rpartition("/")[2] for link in links(plain)]
    assert links(full) == [f"https://git.example.org/runbooks/{page}" for page in pages]
    for page in pages:
        assert (REPOSITORY / "grafana" / "runbooks" / page).exists()
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(full["PrometheusRule", "tpumon"]["spec"]))
    promtool("check", "rules", str(tmp_path / "rules.yml"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"daemonset": {"tolleration": []}}, "tolleration"),
        ({"podMonitor": {"enabled": True}}, "podMonitor"),
        ({"daemonset": {"port": "9999"}}, "port"),
        ({"fleet": {"from": "dns:a:1"}}, "from"),
        ({"monitoring": {"podMonitor": "yes"}}, "podMonitor"),
        ({"labels": {"app.kubernetes.io/instance": "x"}}, "app.kubernetes.io/instance"),
        ({"image": {"repository": ""}}, "build deploy/Containerfile"),
    ],
)
def test_values_that_are_none_are_refused(values, said):
    """A misspelt one would change nothing, and nobody would know."""
    assert said in refusal(**values)


def test_every_value_has_a_place_in_the_schema():
    """values.yaml and the schema name the same."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    known = json.loads((CHART / "values.schema.json").read_text())["properties"]
    del known["global"]  # Helm's own

    assert values.keys() == known.keys()
    for name, section in values.items():
        if name not in {"imagePullSecrets", "labels"}:
            assert section.keys() == known[name]["properties"].keys(), name


def test_notes_name_what_there_is():
    """After `helm install`: how to see something, with names of this release, and what still lacks."""

    def notes(release, **values):
        done = helm("install", release, "--dry-run=client", **values)
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("\nNOTES:\n")[2]

    for release, values in (("tpumon", {}), ("east", {"central": {"enabled": True}})):
        there = {f"{kind.lower()}/{name}" for kind, name in named(rendered(release, **values))}
        spoken = set(re.findall(r"(?:daemonset|deployment|service)/[\w-]+", notes(release, **values)))
        assert len(spoken) == 2 + len(values)
        assert spoken <= there
    assert "Nothing scrapes tpumon yet" in notes("tpumon")
    assert "Nothing scrapes" not in notes("tpumon", monitoring={"podMonitoring": True})
    assert "podMonitorSelector" in notes("tpumon", monitoring={"podMonitor": True})
    assert "enabled is false" in notes("tpumon", monitoring={"enabled": False})
    assert "service/tpumon-fleet" in notes("tpumon", fleet=GUARDED)


def test_the_command_of_the_docs_installs():
    """As it stands there."""
    page = (REPOSITORY / "docs" / "tasks" / "gke.md").read_text()
    command = re.search(r"^    helm install ((?:.+\\\n)*.+)$", page, re.MULTILINE)[1]
    words = command.partition(" #")[0].replace("\\\n", " ").replace("deploy/helm/tpumon", str(CHART)).split()
    done = run("helm", "template", *words)

    assert done.returncode == 0, done.stderr
    assert "DaemonSet" in done.stdout
