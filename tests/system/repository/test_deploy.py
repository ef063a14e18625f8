"""What is in deploy/: manifests by schema, command lines by the parser, the unit by systemd, the image by its files."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest
import yaml

from fakes.run import tpumon
from support import REPOSITORY, require
from support.deploy import DEPLOY, KUBERNETES, VERSIONS, manifest, relabel_configs, schemas_of_kubernetes
from support.prometheus import promtool
from tpumon import __version__
from tpumon.collection.remote.exporter_list import sources_of
from tpumon.discovery.pods import SOCKET
from tpumon.discovery.target_file import TargetFile

OF_KUBERNETES = ["daemonset", "sidecar", "attached", "namespace/namespace", *(f"central/{name}" for name in
                 ("deployment", "service")), *(f"fleet/{name}" for name in
                 ("headless", "claim", "deployment", "service"))]  # fmt: skip


schemas = pytest.fixture(schemas_of_kubernetes)


def pod(name):
    return manifest(name)["spec"]["template"]["spec"]


def containers(name):
    return [*pod(name).get("initContainers", ()), *pod(name)["containers"]]


def our_container(name):
    return next(container for container in containers(name) if container["name"] == "tpumon")


@pytest.mark.real
@pytest.mark.parametrize("version", [*VERSIONS, None], ids=str)
@pytest.mark.parametrize("name", OF_KUBERNETES)
def test_a_manifest_is_what_kubernetes_expects(schemas, name, version):
    """Against Kubernetes' own schemas; a field that it does not know is an error."""
    schemas.validate(manifest(name), version or schemas.latest_version(), strict=True)


@pytest.mark.real
@pytest.mark.parametrize("name", ["daemonset", "sidecar"])
def test_the_probe_for_a_guarded_port_is_one(schemas, name):
    """What deploy/README.md says to put where --web-config makes pages of tpumon answer 401: it asks for no page."""
    text = re.search(r"\n    livenessProbe:\n(?:      .+\n)+", (DEPLOY / "README.md").read_text())[0]
    (probe,) = yaml.safe_load(text).values()
    changed = manifest(name)
    spec = changed["spec"]["template"]["spec"]
    container = next(
        one for key in ("initContainers", "containers") for one in spec.get(key, ()) if one["name"] == "tpumon"
    )
    container["livenessProbe"] = probe

    schemas.validate(changed, "1.33", strict=True)
    assert "httpGet" not in probe
    assert probe["tcpSocket"]["port"] in {port["name"] for port in container["ports"]}


@pytest.mark.real
def test_the_schema_check_is_strict(schemas):
    """A misspelt field would be found: else the test above would prove little."""
    wrong = manifest("daemonset")
    wrong["spec"]["template"]["spec"]["hostNetwrk"] = True

    with pytest.raises(schemas.ValidationError):
        schemas.validate(wrong, "1.33", strict=True)


def test_the_podmonitor_selects_our_pods_and_their_port():
    """No schema of it is at hand: keys are those of the operator's API, label and port those of the manifests."""
    monitor = manifest("podmonitor")

    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    assert set(monitor["spec"]) == {"namespaceSelector", "selector", "podMetricsEndpoints"}
    (label,) = monitor["spec"]["selector"]["matchLabels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert set(endpoint) == {"port", "path", "interval", "relabelings"}
    for name in ("daemonset", "sidecar"):
        assert label in manifest(name)["spec"]["template"]["metadata"]["labels"].items()
        assert endpoint["port"] in {port["name"] for port in our_container(name)["ports"]}
    for step in endpoint["relabelings"]:
        assert set(step) == {"sourceLabels", "targetLabel"}


def test_both_recipes_relabel_alike():
    """podmonitor.yaml does what kubernetes.yml does, but for what the operator does by itself."""
    (endpoint,) = manifest("podmonitor")["spec"]["podMetricsEndpoints"]
    snake = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    in_monitor = [{snake.get(key, key): value for key, value in step.items()} for step in endpoint["relabelings"]]
    by_operator, ours = relabel_configs()[:4], relabel_configs()[4:]

    assert ours == in_monitor
    assert [step.get("target_label") for step in by_operator] == [None, None, "namespace", "pod"]


def test_no_recipe_takes_a_label_that_is_taken():
    """`job`, `instance` and what the exporter itself shows stay as they are."""
    made = {step["target_label"] for step in relabel_configs() if "target_label" in step}

    assert made == {"namespace", "pod", "node"}


def test_the_image_is_of_this_version():
    """That of kustomize, of the sidecar and of the Containerfile."""
    (image,) = manifest("kustomization")["images"]

    assert image["name"] == our_container("daemonset")["image"]
    assert image["newTag"] == __version__
    assert our_container("sidecar")["image"] == f"{image['newName']}:{__version__}"
    assert f"{image['newName']}:{__version__}" in (DEPLOY / "Containerfile").read_text()


def test_google_s_monitoring_selects_our_pods_and_their_port():
    """No schema of it is at hand: keys are those of its documentation."""
    monitor, podmonitor = manifest("podmonitoring"), manifest("podmonitor")

    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.googleapis.com/v1", "ClusterPodMonitoring")
    assert set(monitor["spec"]) == {"selector", "endpoints", "targetLabels"}
    assert monitor["spec"]["selector"] == podmonitor["spec"]["selector"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert set(endpoint) == {"port", "path", "interval"}
    assert endpoint["port"] == "tpumon"
    assert monitor["spec"]["targetLabels"] == {"metadata": ["pod", "node"]}


def test_the_central_one_has_names_and_slices(tmp_path):
    """The targets file is one that tpumon reads, each worker with a slice."""
    told = manifest("central/kustomization")
    central = KUBERNETES / "central"

    assert told["images"] == manifest("kustomization")["images"]
    (generated,) = told["configMapGenerator"]
    assert generated["files"] == ["targets.json"]
    assert generated["name"] == pod("central/deployment")["volumes"][0]["configMap"]["name"]

    async def found():
        async with aclosing(TargetFile(str(central / "targets.json")).watch(lambda: False)) as changes:
            return await anext(changes)

    targets = asyncio.run(found()).targets
    assert {target.slice for target in targets} == {"slice-0", "slice-1"}
    assert all(target.worker.startswith("pretrain-slice-") for target in targets)


def test_root_is_for_the_kubelet_s_socket_and_a_directory_of_its_own():
    """No capability, no other path of the node; the socket's directory cannot be written to."""
    paths = {volume["name"]: volume["hostPath"] for volume in pod("daemonset")["volumes"] if "hostPath" in volume}
    mounts = {mount["name"]: mount for mount in our_container("daemonset")["volumeMounts"]}

    assert {name: path["path"] for name, path in paths.items()} == {
        "state": "/var/lib/tpumon",
        "pod-resources": str(SOCKET.parent),
    }
    assert Path(mounts["pod-resources"]["mountPath"]) == SOCKET.parent
    assert mounts["pod-resources"]["readOnly"] is True


@pytest.mark.parametrize("name", ["daemonset", "fleet/deployment", "central/deployment", "sidecar", "attached"])
def test_state_is_kept_on_a_volume(name):
    """Where `--state` points, the file system can be written to; that of a node and of the fleet outlasts the pod."""
    args, spec = our_container(name)["args"], pod(name)
    (mount,) = [each for each in our_container(name)["volumeMounts"] if each["name"] == "state"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "state"]

    assert args[args.index("--state") + 1] == mount["mountPath"]
    assert not mount.get("readOnly")
    if name == "daemonset":
        assert volume["hostPath"] == {"path": "/var/lib/tpumon", "type": "DirectoryOrCreate"}  # made as root's
        assert spec["securityContext"]["runAsUser"] == 0
    elif name == "fleet/deployment":
        assert volume["persistentVolumeClaim"]["claimName"] == manifest("fleet/claim")["metadata"]["name"]
        assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]
    else:
        assert "emptyDir" in volume


def test_the_fleet_s_process_reads_the_daemonset():
    """By the name of a headless Service of its pods, and their port; one process, which Prometheus scrapes, too."""
    args = our_container("fleet/deployment")["args"]
    headless, service = manifest("fleet/headless"), manifest("fleet/service")
    deployment, daemonset = manifest("fleet/deployment")["spec"], manifest("daemonset")["spec"]
    (port,) = headless["spec"]["ports"]

    (source,) = sources_of(args[args.index("--from") + 1])
    assert source == f"dns:{headless['metadata']['name']}:{port['port']}"
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True
    assert headless["spec"]["selector"].items() <= daemonset["template"]["metadata"]["labels"].items()
    assert not headless["spec"]["selector"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert port["port"] == our_container("daemonset")["ports"][0]["containerPort"]
    assert service["spec"]["selector"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}
    (label,) = manifest("podmonitor")["spec"]["selector"]["matchLabels"].items()
    assert label in deployment["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("name", ["daemonset", "fleet/deployment", "central/deployment"])
def test_no_service_s_name_is_taken_for_an_option(name):
    """Kubernetes would set TPUMON_PORT=tcp://... for a Service called tpumon beside it."""
    assert pod(name)["enableServiceLinks"] is False


@pytest.mark.parametrize("name", ["daemonset", "sidecar", "attached", "fleet/deployment"])
def test_pods_ask_for_no_rights(name):
    """No capabilities, nothing to write to but /tmp, for `tpumon pause`, and state; a bound on memory, none on CPU."""
    security = (pod(name).get("securityContext") or {}) | our_container(name)["securityContext"]
    written = {mount["mountPath"] for mount in our_container(name)["volumeMounts"] if not mount.get("readOnly")}

    assert security["runAsNonRoot"] is (name != "daemonset")
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert written <= {"/tmp", "/var/lib/tpumon"}
    assert set(our_container(name)["resources"]["limits"]) == {"memory"}


def test_the_sidecar_cannot_keep_the_job_from_ending_or_being_ready():
    """An init container that restarts always ends with the job; no probe of it decides whether the pod is ready."""
    (sidecar,) = pod("sidecar")["initContainers"]

    assert sidecar["restartPolicy"] == "Always"
    assert "readinessProbe" not in sidecar
    assert "startupProbe" not in sidecar
    assert not pod("sidecar").get("hostNetwork")


def test_an_unmodified_image_is_attached(tmp_path):
    """What the init container runs puts there what the job's PYTHONPATH names; it needs no right to the directory.

    It runs again when the pod's sandbox is made anew, and the volume is then as it left it.
    """
    copying, _ = pod("attached")["initContainers"]
    (job,) = pod("attached")["containers"]
    (variable,) = job["env"]
    command = [word.replace("/attach/", f"{tmp_path}/") for word in copying["command"]]
    env = {"TPUMON_ATTACH": "0", "PYTHONPATH": str(REPOSITORY)}
    for _ in range(2):
        subprocess.run([sys.executable, *command[1:]], check=True, env=env)
    path = variable["value"].replace("/attach/", f"{tmp_path}/")
    program = "import sys; print('tpumon_attach' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONPATH": path})

    assert variable["name"] == "PYTHONPATH"
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_the_daemonset_is_in_the_node_s_network_and_on_tpu_nodes_only():
    """So it reaches 127.0.0.1 of jobs with hostNetwork; nodes without TPUs have none of it."""
    spec = pod("daemonset")

    assert spec["hostNetwork"] is True
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert spec["automountServiceAccountToken"] is False
    assert "cloud.google.com/gke-tpu-accelerator" in str(spec["affinity"]["nodeAffinity"])
    assert {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]


def command_lines():
    unit = (DEPLOY / "systemd" / "tpumon.service").read_text()
    image = (DEPLOY / "Containerfile").read_text()
    return {
        "daemonset": our_container("daemonset")["args"],
        "sidecar": our_container("sidecar")["args"],
        "attached": our_container("attached")["args"],
        "central": our_container("central/deployment")["args"],
        "fleet": our_container("fleet/deployment")["args"],
        "unit": re.search(r"^ExecStart=/opt/tpumon/bin/tpumon (.+)$", unit, re.MULTILINE)[1].split(),
        "image": yaml.safe_load(re.search(r"^CMD (.+)$", image, re.MULTILINE)[1]),
    }


@pytest.mark.parametrize("name", ["daemonset", "sidecar", "attached", "central", "fleet", "unit", "image"])
def test_command_lines_are_understood(name):
    """`tpumon` knows the command and all its options; the port is the one that the manifest opens."""
    args = command_lines()[name]

    tpumon(*args, "--help").ended(0)
    if name != "unit":
        assert args[args.index("--listen") + 1] == "0.0.0.0:10466"


def test_the_unit_s_environment_names_options_that_exist():
    """TPUMON_<OPTION> of `tpumon serve`."""
    names = re.findall(r"^#?TPUMON_(\w+)=", (DEPLOY / "systemd" / "tpumon.env").read_text(), re.MULTILINE)
    help_text = tpumon("serve", "--help").ended(0).out

    assert names
    for name in names:
        assert f"--{name.lower().replace('_', '-')} " in help_text


@pytest.mark.real
def test_systemd_finds_no_fault_with_the_unit(tmp_path):
    """`systemd-analyze verify`, with a program that exists, and with what is commented out; and little is exposed."""
    require(shutil.which("systemd-analyze"), "systemd-analyze")
    unit = tmp_path / "tpumon.service"
    text = (DEPLOY / "systemd" / "tpumon.service").read_text().replace("/opt/tpumon/bin/tpumon", "/bin/true")
    assert "\n#ReadWritePaths=/" in text, "an export to a file needs it"
    unit.write_text(text.replace("\n#ReadWritePaths=", "\nReadWritePaths="))
    command = ["systemd-analyze", "verify", "--man=no", unit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit_sees_pauses():
    """`tpumon pause` leaves its file in /tmp: a private one would hide it, and sampling would go on."""
    unit = (DEPLOY / "systemd" / "tpumon.service").read_text()

    assert re.search(r"^PrivateTmp=no$", unit, re.MULTILINE)
    assert not re.search(r"^DynamicUser=", unit, re.MULTILINE)
    user = re.search(r"^User=(\w+)$", unit, re.MULTILINE)[1]
    assert f"\nu {user} " in (DEPLOY / "systemd" / "tpumon.sysusers.conf").read_text()


def test_the_image_gets_all_that_its_build_needs(tmp_path):
    """The files that the Containerfile copies, and no others, make the wheel."""
    uv = REPOSITORY / ".uv" / "bin" / "uv"
    require(uv.exists(), "uv in .uv/")
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE):
        for name in copied.split():
            source = REPOSITORY / name
            if source.is_dir():
                shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, tmp_path)
    out = tmp_path / "dist"
    build = [uv, "build", "--quiet", "--wheel", "--out-dir", out, tmp_path]
    done = subprocess.run([*build, "--offline"], capture_output=True, text=True, timeout=100)
    if done.returncode:
        done = subprocess.run(build, capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stderr
    assert list(out.glob("*.whl"))


@pytest.mark.real
def test_promtool_understands_the_example():
    """Those without Kubernetes, which Debian's Prometheus does not know: see the test of relabelling."""
    for name in ("prometheus.yml", "probe.yml"):
        promtool("check", "config", "--syntax-only", str(DEPLOY / "prometheus" / name))


def test_the_image_s_packages_are_those_of_the_lock():
    """Each by its hashes; `uv export` as below writes the file anew."""
    uv = REPOSITORY / ".uv" / "bin" / "uv"
    require(uv.exists(), "uv in .uv/")
    export = "export --frozen --no-dev --extra gcp --no-emit-project --no-annotate --no-header -q --offline"
    done = subprocess.run([uv, *export.split()], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60)

    assert (DEPLOY / "requirements.txt").read_text() == done.stdout
    for name in ("requirements.txt", "build-requirements.txt"):
        entries = re.split(r"\n(?=\S)", (DEPLOY / name).read_text().strip())
        assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)
