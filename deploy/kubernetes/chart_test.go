package kubernetes

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"
)

const chart = "../helm/plegd"

// helm runs the helm that `make build/tools/helm` builds.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program := os.Getenv("HELM")
	if program == "" {
		program = "../../build/tools/helm"
	}
	if _, err := exec.LookPath(program); err != nil {
		if ci := os.Getenv("CI"); ci != "" && ci != "false" && ci != "0" {
			t.Fatalf("there is no %s: make build/tools/helm", program)
		}
		t.Skipf("SKIPPED: there is no %s: make build/tools/helm", program)
	}
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// template renders the chart and decodes it: a field that the API or
// prometheus-operator does not have, or a repeated one, is an error.
func template(t *testing.T, set ...string) ([]runtime.Object, error) {
	t.Helper()
	args := []string{"template", "plegd", chart, "--namespace=plegd", "--kube-version=1.36.0"}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	out, err := helm(t, args...)
	if err != nil {
		return nil, err
	}
	return decode(out)
}

func decode(manifests string) ([]runtime.Object, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), networking.AddToScheme(scheme), rbac.AddToScheme(scheme), monitoring.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var all []runtime.Object
	for doc := range strings.SplitSeq("\n"+manifests, "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		object, _, err := decoder.Decode([]byte(doc), nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, doc)
		}
		all = append(all, object)
	}
	return all, nil
}

// one returns the only object of its kind.
func one[T runtime.Object](t *testing.T, all []runtime.Object) T {
	t.Helper()
	var found []T
	for _, o := range all {
		if o, ok := o.(T); ok {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T, want one", len(found), *new(T))
	}
	return found[0]
}

func TestChartLint(t *testing.T) {
	if out, err := helm(t, "lint", "--strict", chart); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// sockets are the chart's runtimes, each with the socket that plegd is given.
var sockets = map[string]string{
	"auto":        "",
	"containerd":  "/run/containerd/containerd.sock",
	"crio":        "/run/crio/crio.sock",
	"cri-dockerd": "/run/cri-dockerd.sock",
	"k3s":         "/run/k3s/containerd/containerd.sock",
	"rke2":        "/run/k3s/containerd/containerd.sock",
	"k0s":         "/run/k0s/containerd.sock",
	"microk8s":    "/var/snap/microk8s/common/run/containerd.sock",
}

func TestChartRuntimes(t *testing.T) {
	for name, socket := range sockets {
		all, err := template(t, "runtime.name="+name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(all) != 5 {
			t.Errorf("%s: %d objects, want a ServiceAccount with a ClusterRole and its binding, a DaemonSet and the test", name, len(all))
		}
		if err := checkDaemonSet(one[*appsv1.DaemonSet](t, all), one[*corev1.ServiceAccount](t, all), socket); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChartIsTheBase compares the pods of the chart with those of the kustomizations.
func TestChartIsTheBase(t *testing.T) {
	for dir, name := range map[string]string{"base": "containerd", "crio": "crio", "k3s": "k3s"} {
		all, err := template(t, "runtime.name="+name, "image.tag=dev")
		must(t, err)
		charts := one[*appsv1.DaemonSet](t, all).Spec
		all, err = objects(files(t), dir)
		must(t, err)
		bases := one[*appsv1.DaemonSet](t, all).Spec
		if !equality.Semantic.DeepEqual(charts.UpdateStrategy, bases.UpdateStrategy) || !equality.Semantic.DeepEqual(charts.Template.Spec, bases.Template.Spec) {
			a, _ := yaml.Marshal(charts.Template.Spec)
			b, _ := yaml.Marshal(bases.Template.Spec)
			t.Errorf("the chart's pods with runtime.name=%s differ from %s:\n%s\nand\n%s", name, dir, a, b)
		}
	}
}

// all switches everything on.
var everything = []string{
	"podMonitor.enabled=true", "podMonitor.labels.release=stack", "podMonitor.relabelings[0].targetLabel=rack", "podMonitor.relabelings[0].replacement=r1",
	"podMonitor.endpoint.basicAuth.username.name=login", "podMonitor.endpoint.basicAuth.username.key=user",
	"podMonitor.metricRelabelings[0].action=drop", "podMonitor.metricRelabelings[0].regex=go_.*", "podMonitor.metricRelabelings[0].sourceLabels[0]=__name__",
	"prometheusRule.enabled=true", "prometheusRule.labels.release=stack", "prometheusRule.alertLabels.team=nodes", "prometheusRule.runbookBaseURL=https://wiki.example.org/",
	"prometheusRule.disabled[0]=PLEGFlapping",
	"extraEnv[0].name=PLEGD_LOG_LEVEL", "extraEnv[0].value=debug", "extraVolumes[0].name=x", "extraVolumes[0].emptyDir.medium=Memory",
	"extraVolumeMounts[0].name=x", "extraVolumeMounts[0].mountPath=/x", "commonLabels.team=nodes", "annotations.owner=me",
	"dashboards.enabled=true", "networkPolicy.enabled=true", "networkPolicy.from[0].namespaceSelector.matchLabels.name=monitoring",
	"web.auth.enabled=true", "web.auth.config.basic_auth_users.prometheus=$2y$10$abc", "web.nodeAddressOnly=true", "web.port=9990",
	"kubeletConfig=/var/lib/kubelet/config.yaml", "extraArgs[0]=--log.level=debug", "stateDir=", "controlDir=",
	"imagePullSecrets[0].name=registry", "podAnnotations.a=b", "podLabels.c=d", "serviceAccount.annotations.e=f",
	"image.digest=sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
}

func TestChartOptions(t *testing.T) {
	all, err := template(t, everything...)
	must(t, err)
	ds := one[*appsv1.DaemonSet](t, all)
	c := ds.Spec.Template.Spec.Containers[0]
	for _, arg := range []string{"--web.listen-address=[$(HOST_IP)]:9990", "--web.config.file=/etc/plegd/web.yml", "--log.level=debug"} {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("the arguments %q are without %s", c.Args, arg)
		}
	}
	if c.Env[len(c.Env)-1].Name != "PLEGD_LOG_LEVEL" || c.VolumeMounts[len(c.VolumeMounts)-1].MountPath != "/x" {
		t.Errorf("the environment is %v, the mounts are %v", c.Env, c.VolumeMounts)
	}
	if ds.Labels["team"] != "nodes" || ds.Spec.Template.Labels["team"] != "nodes" || ds.Annotations["owner"] != "me" {
		t.Errorf("the DaemonSet's labels are %v, its annotations %v", ds.Labels, ds.Annotations)
	}
	if !probes(c.LivenessProbe, "/-/healthy") || !probes(c.ReadinessProbe, "/-/ready") {
		t.Error("a plegd that is stopped still accepts connections: the probes must ask it")
	}
	if secret := one[*corev1.Secret](t, all); !strings.Contains(secret.StringData["web.yml"], "prometheus: $2y$10$abc") {
		t.Errorf("the web configuration is %q", secret.StringData["web.yml"])
	}
	if ds.Spec.Template.Annotations["checksum/web"] == "" {
		t.Error("a changed password does not restart the pods")
	}
	pm := one[*monitoring.PodMonitor](t, all)
	if pm.Labels["release"] != "stack" || !maps.Equal(pm.Spec.Selector.MatchLabels, ds.Spec.Selector.MatchLabels) {
		t.Errorf("the PodMonitor %v selects %v", pm.Labels, pm.Spec.Selector)
	}
	endpoint := pm.Spec.PodMetricsEndpoints[0]
	if *endpoint.Port != c.Ports[0].Name || endpoint.RelabelConfigs[0].TargetLabel != "node" || endpoint.BasicAuth == nil {
		t.Errorf("the PodMonitor's endpoint is %+v", endpoint)
	}
	if len(one[*networking.NetworkPolicy](t, all).Spec.Ingress[0].From) != 1 {
		t.Error("the network policy lets everybody in")
	}
	dashboards := 0
	for _, o := range all {
		if cm, ok := o.(*corev1.ConfigMap); ok {
			for name, text := range cm.Data {
				dashboards++
				want, err := os.ReadFile(filepath.Join("../grafana", name))
				if err != nil || strings.TrimSpace(text) != strings.TrimSpace(string(want)) {
					t.Errorf("%s in the chart is not the one in deploy/grafana (%v)", name, err)
				}
			}
		}
	}
	if dashboards != 3 {
		t.Errorf("%d dashboards", dashboards)
	}
}

// TestChartRules compares the PrometheusRule with deploy/prometheus.
func TestChartRules(t *testing.T) {
	want := map[string]string{}
	for _, name := range []string{"plegd.rules.yml", "plegd.recording.yml"} {
		b, err := os.ReadFile(filepath.Join("../prometheus", name))
		must(t, err)
		var spec monitoring.PrometheusRuleSpec
		must(t, yaml.UnmarshalStrict(b, &spec))
		for _, g := range spec.Groups {
			for _, r := range g.Rules {
				want[r.Alert+r.Record+fmt.Sprint(r.Labels["failure"], r.Labels["why"])] = r.Expr.StrVal
			}
		}
	}
	all, err := template(t, everything...)
	must(t, err)
	got := map[string]string{}
	for _, g := range one[*monitoring.PrometheusRule](t, all).Spec.Groups {
		if g.Interval == nil || *g.Interval != "15s" {
			t.Errorf("%s is evaluated every %v", g.Name, g.Interval)
		}
		for _, r := range g.Rules {
			got[r.Alert+r.Record+fmt.Sprint(r.Labels["failure"], r.Labels["why"])] = r.Expr.StrVal
			if r.Alert == "" {
				continue
			}
			if r.Labels["team"] != "nodes" || r.Labels["severity"] == "" {
				t.Errorf("%s has the labels %v", r.Alert, r.Labels)
			}
			if _, link, _ := strings.Cut(r.Annotations["runbook_url"], "https://"); !strings.HasPrefix(link, "wiki.example.org/") {
				t.Errorf("%s: the runbook is %s", r.Alert, r.Annotations["runbook_url"])
			}
		}
	}
	delete(want, "PLEGFlapping")
	if !maps.Equal(got, want) {
		t.Errorf("the rules are\n%v\nwant\n%v", got, want)
	}
}

// TestChartMore: objects of types that this module does not have, and a setting of the rules.
func TestChartMore(t *testing.T) {
	out, err := helm(t, "template", "plegd", chart, "--namespace=plegd", "--kube-version=1.36.0", "--set", "openshift.enabled=true,alertmanagerConfig.enabled=true,prometheusRule.enabled=true,prometheusRule.reasons.RelistSlow=critical,prometheusRule.reasons.ShimStuck=none,prometheusRule.delays.PLEGReasonLasting=1h,prometheusRule.severities.PLEGReasonLasting=info")
	must(t, err)
	for _, want := range []string{
		"kind: SecurityContextConstraints\n", "projected", "allowedCapabilities: [SYS_PTRACE]\n", "system:serviceaccount:plegd:plegd\n",
		"kind: AlertmanagerConfig\n", "groupWait: 20s\n", "- name: on-call\n", `or instance:pleg_primary_reason:active{reason=~"RelistSlow"})`, "for: 1h\n", "severity: info\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q", want)
		}
	}
	if n := strings.Count(out, `, reason!~"RelistLoopStalled|RelistSlow|ShimStuck"}`); n != 3 {
		t.Errorf("%d of 3 alerts leave out the reasons that another one has", n)
	}
	out, err = helm(t, "template", "plegd", chart, "--kube-version=1.36.0", "--values="+chart+"/values-fleet.yaml")
	if err != nil || !strings.Contains(out, "kind: PodMonitor\n") || strings.Count(out, "interval: 30s\n") < 2 {
		t.Errorf("the values for a fleet (%v):\n%s", err, out)
	}
}

// TestChartVersions: an API server before 1.30 knows the annotation only, and a later one would
// refuse both if they differed.
func TestChartVersions(t *testing.T) {
	for version, field := range map[string]bool{"1.29.9": false, "1.30.0": true, "v1.33.1-eks-1234567": true, "v1.30.0-gke.100": true} {
		out, err := helm(t, "template", "plegd", chart, "--kube-version="+version)
		must(t, err)
		if strings.Contains(out, "appArmorProfile:") != field || strings.Contains(out, appArmorAnnotation+": unconfined") == field {
			t.Errorf("on %s the field is wanted: %t, rendered\n%s", version, field, out)
		}
	}
}

// TestChartKubelet: the pod has a token for the kubelet's metrics, whose role allows nothing else,
// and a URL that is one for each family of addresses. Nothing is mounted below the node's /run.
func TestChartKubelet(t *testing.T) {
	all, err := template(t, "kubeletMetrics.servingCertificate=/var/lib/kubelet/pki/kubelet.crt", "installBinary=/opt/plegd/bin")
	must(t, err)
	must(t, onlyKubeletMetrics(t, all, one[*corev1.ServiceAccount](t, all)))
	pod := one[*appsv1.DaemonSet](t, all).Spec.Template.Spec
	c := pod.Containers[0]
	for _, arg := range []string{"--kubelet-metrics-url=https://[$(HOST_IP)]:10250/metrics", "--kubelet-ca-file=/etc/kubelet.crt", "--kubelet-token-file=/etc/plegd-kubelet/token"} {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("the arguments %q are without %s", c.Args, arg)
		}
	}
	for _, m := range c.VolumeMounts {
		if strings.HasPrefix(m.MountPath, "/var/run/") || strings.HasPrefix(m.MountPath, "/run/") && m.MountPath != "/run/plegd" {
			t.Errorf("%s cannot be mounted below the node's /run", m.MountPath)
		}
	}
	if i := pod.InitContainers; len(i) != 1 || i[0].Args[0] != "install" || len(i[0].SecurityContext.Capabilities.Add) != 0 {
		t.Errorf("the init containers are %+v", i)
	}
}

// TestChartTestPod: `helm test` runs plegd's image wherever the DaemonSet may run.
func TestChartTestPod(t *testing.T) {
	for _, set := range [][]string{nil, {"tolerations[0].key=gpu", "tolerations[0].operator=Exists", "nodeSelector.pool=gpu", "imagePullSecrets[0].name=registry"}} {
		all, err := template(t, set...)
		must(t, err)
		test, pod := one[*corev1.Pod](t, all), one[*appsv1.DaemonSet](t, all).Spec.Template.Spec
		if test.Annotations["helm.sh/hook"] != "test" || test.Spec.Containers[0].Image != pod.Containers[0].Image {
			t.Errorf("%q: the test is %+v", set, test)
		}
		placed := func(s corev1.PodSpec) any {
			return []any{s.Tolerations, s.NodeSelector, s.Affinity, s.ImagePullSecrets}
		}
		if len(pod.Tolerations) != 1 || !equality.Semantic.DeepEqual(placed(test.Spec), placed(pod)) {
			t.Errorf("%q: the test is placed by %+v, the DaemonSet by %+v", set, placed(test.Spec), placed(pod))
		}
	}
}

// TestChartControl: wherever the control socket is, its directory can be mounted below a read-only
// /run, and the commands in the pod find it.
func TestChartControl(t *testing.T) {
	for dir, want := range map[string]string{"/run/plegd": "/run/plegd", "": "/control", "/var/lib/plegd-control": "/control", "/run/other": "/control"} {
		all, err := template(t, "controlDir="+dir)
		must(t, err)
		c := one[*appsv1.DaemonSet](t, all).Spec.Template.Spec.Containers[0]
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "control" && m.MountPath == want })
		named := slices.Contains(c.Env, corev1.EnvVar{Name: "PLEGD_CONTROL_SOCKET", Value: want + "/plegd.sock"})
		if !mounted || named != (want != "/run/plegd") {
			t.Errorf("controlDir=%q: the mounts are %v, the environment is %v", dir, c.VolumeMounts, c.Env)
		}
	}
}

// TestChartRefusals: wrong values are refused with a line that names them.
func TestChartRefusals(t *testing.T) {
	for set, found := range map[string]string{
		"runtime.name=docker":                                "/runtime/name",
		"runtime.nam=containerd":                             "runtime",
		"runtime.endpoint=run/x.sock":                        "/runtime/endpoint",
		"podMonitor.interval=2m":                             "/podMonitor/interval",
		"prometheusRule.reasons.ShimStuck=page":              "/prometheusRule/reasons",
		"web.port=0":                                         "/web/port",
		"podMonitor.endpoint.interval=5s":                    "/podMonitor/endpoint",
		"image.digest=sha256:abc":                            "/image/digest",
		"prometheusRule.alertLabels.severity=x":              "/prometheusRule/alertLabels",
		"extraArgs[0]=debug":                                 "/extraArgs/0",
		"prometheusRule.runbookBaseURL=wiki":                 "/prometheusRule/runbookBaseURL",
		"networkPolicy.from[0]=x":                            "from",
		"networkPolicy.enabled=true,networkPolicy.from=null": "networkPolicy.from is empty",
		"web.auth.enabled=true":                              "set web.auth.config or web.auth.existingSecret",
		"runtime.name=k3s,runtime.endpoint=/run/x/y.sock":    "set one of them",
	} {
		_, err := template(t, set)
		if err == nil || !strings.Contains(err.Error(), found) && !strings.Contains(err.Error(), strings.ReplaceAll(strings.TrimPrefix(found, "/"), "/", ".")) {
			t.Errorf("with %s the error is %v, want %s", set, err, found)
		}
	}
}

// TestChartUpgrade: fields that the API does not let change are independent of the values, and the
// same as in the first release.
func TestChartUpgrade(t *testing.T) {
	want := map[string]string{"app.kubernetes.io/name": "plegd", "app.kubernetes.io/instance": "plegd"}
	for _, set := range [][]string{nil, everything, {"runtime.name=k3s", "image.tag=9.9.9"}} {
		all, err := template(t, set...)
		must(t, err)
		ds := one[*appsv1.DaemonSet](t, all)
		if !maps.Equal(ds.Spec.Selector.MatchLabels, want) || len(ds.Spec.Selector.MatchExpressions) != 0 {
			t.Errorf("the selector is %v: an upgrade would be refused", ds.Spec.Selector)
		}
		if ds.Name != "plegd" {
			t.Errorf("the DaemonSet is called %s: an upgrade would leave two", ds.Name)
		}
	}
}
