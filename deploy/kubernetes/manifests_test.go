package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// files returns the manifests, by their paths.
func files(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob("*/*.yaml")
	must(t, err)
	out := map[string]string{}
	for _, path := range found {
		b, err := os.ReadFile(path)
		must(t, err)
		out[path] = string(b)
	}
	return out
}

// objects builds a kustomization and decodes it. A field that the API does not
// have, or a repeated one, is an error.
func objects(manifests map[string]string, dir string) ([]runtime.Object, error) {
	fs := filesys.MakeFsInMemory()
	for path, text := range manifests {
		if err := fs.WriteFile("/"+path, []byte(text)); err != nil {
			return nil, err
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, "/"+dir)
	if err != nil {
		return nil, fmt.Errorf("kustomize build %s: %w", dir, err)
	}
	text, err := built.AsYaml()
	if err != nil {
		return nil, err
	}
	return decode(string(text))
}

// runtimes are the kustomizations, each with the socket that it watches.
var runtimes = map[string]string{
	"base": "/run/containerd/containerd.sock",
	"crio": "/run/crio/crio.sock",
	"k3s":  "/run/k3s/containerd/containerd.sock",
}

func TestManifests(t *testing.T) {
	for dir, socket := range runtimes {
		all, err := objects(files(t), dir)
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		if len(all) != 5 {
			t.Errorf("%s: %d objects, want a Namespace, a ServiceAccount with a ClusterRole and its binding, and a DaemonSet", dir, len(all))
		}
		ds, ns, account := one[*appsv1.DaemonSet](t, all), one[*corev1.Namespace](t, all), one[*corev1.ServiceAccount](t, all)
		if ns.Name != ds.Namespace || account.Namespace != ns.Name || ns.Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
			t.Errorf("%s: the namespace does not admit the pod", dir)
		}
		if err := onlyKubeletMetrics(t, all, account); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		if ds.Spec.Template.Annotations[appArmorAnnotation] != "unconfined" {
			t.Errorf("%s: the annotations are %v: before 1.30 AppArmor denies reading the runtime", dir, ds.Spec.Template.Annotations)
		}
		if err := checkDaemonSet(ds, account, socket); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// onlyKubeletMetrics returns an error unless the account's one role allows the kubelet's metrics and nothing else.
func onlyKubeletMetrics(t *testing.T, all []runtime.Object, account *corev1.ServiceAccount) error {
	t.Helper()
	role, binding := one[*rbac.ClusterRole](t, all), one[*rbac.ClusterRoleBinding](t, all)
	metrics := rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}}
	bound := len(binding.Subjects) == 1 && binding.Subjects[0].Name == account.Name && binding.Subjects[0].Namespace == account.Namespace
	if len(role.Rules) != 1 || !equality.Semantic.DeepEqual(role.Rules[0], metrics) || binding.RoleRef.Name != role.Name || !bound {
		return fmt.Errorf("the role is %+v, bound by %+v", role.Rules, binding)
	}
	return nil
}

// appArmorAnnotation is the AppArmor profile of the container for clusters before 1.30.
const appArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/plegd"

// checkDaemonSet returns the errors of the DaemonSet, which watches the given socket;
// without one plegd looks for it.
func checkDaemonSet(ds *appsv1.DaemonSet, account *corev1.ServiceAccount, socket string) error {
	var errs []error
	want := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New(what))
		}
	}
	pod := ds.Spec.Template.Spec
	selected := len(ds.Spec.Selector.MatchLabels) > 0
	for key, value := range ds.Spec.Selector.MatchLabels {
		selected = selected && ds.Spec.Template.Labels[key] == value
	}
	want(selected, "the selector does not select the pods")
	want(pod.HostPID, "hostPID is not set")
	want(pod.HostNetwork, "hostNetwork is not set")
	want(pod.PriorityClassName == "system-node-critical", "the priority class is "+pod.PriorityClassName)
	want(len(pod.Tolerations) == 1 && pod.Tolerations[0] == corev1.Toleration{Operator: corev1.TolerationOpExists}, "not every taint is tolerated")
	want(pod.NodeSelector["kubernetes.io/os"] == "linux", "it is not for Linux only")
	no := func(b *bool) bool { return b != nil && !*b }
	want(no(pod.AutomountServiceAccountToken) && no(account.AutomountServiceAccountToken) && pod.ServiceAccountName == account.Name, "a token for the API is mounted")
	want(no(pod.EnableServiceLinks), "the services' variables would be taken for settings")
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		return errors.New("want one container")
	}
	c := pod.Containers[0]
	want(len(c.Command) == 0 && len(c.Args) > 1 && c.Args[0] == "run", "the container does not run plegd run")
	named := slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--runtime-endpoint") })
	want(socket == "" && !named || slices.Contains(c.Args, "--runtime-endpoint=unix://"+socket), "the runtime's socket is not "+socket)
	want(strings.HasPrefix(c.Image, "localhost/plegd:"), "the image is "+c.Image+", which somebody else might serve")
	want(probes(c.LivenessProbe, "/-/healthy"), "liveness does not ask /-/healthy")
	want(probes(c.ReadinessProbe, "/-/ready"), "readiness does not ask /-/ready")
	want(len(c.Ports) == 1 && c.Ports[0].ContainerPort == 20290 && c.Ports[0].Name == "metrics", "the port is not 20290")
	want(c.Resources.Limits.Memory().String() == "256Mi", "the memory's limit is not the unit's")

	s := c.SecurityContext
	if s == nil || s.Capabilities == nil || s.SELinuxOptions == nil || s.SeccompProfile == nil || s.RunAsUser == nil || s.ReadOnlyRootFilesystem == nil {
		return errors.New("the security context is not complete")
	}
	want(slices.Equal(s.Capabilities.Add, []corev1.Capability{"SYS_PTRACE"}), "it has another capability than SYS_PTRACE, or not that one")
	want(len(s.Capabilities.Drop) == 1 && s.Capabilities.Drop[0] == "ALL", "not every capability is dropped")
	want(no(s.Privileged) && no(s.AllowPrivilegeEscalation), "it is privileged, or may become so")
	want(*s.ReadOnlyRootFilesystem, "the root file system can be written")
	want(*s.RunAsUser == 0, "it does not run as root, whose the socket is")
	want(s.RunAsGroup != nil && *s.RunAsGroup == 65534, "it runs in root's group, or in one that the image names")
	want(s.SELinuxOptions.Type == "spc_t", "the SELinux type is not spc_t")
	want(s.AppArmorProfile != nil && s.AppArmorProfile.Type == corev1.AppArmorProfileTypeUnconfined, "AppArmor's default profile denies reading the runtime")
	want(s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault, "the seccomp profile is not the runtime's")

	if socket == "" {
		errs = append(errs, mounts(pod, c, "/run", "/run", "/var/run"))
	} else {
		errs = append(errs, mounts(pod, c, filepath.Dir(socket), filepath.Dir(socket)))
	}
	return errors.Join(errs...)
}

func probes(p *corev1.Probe, path string) bool {
	return p != nil && p.HTTPGet != nil && p.HTTPGet.Path == path && p.HTTPGet.Port.String() == "metrics"
}

// kubeletToken stands for the volume of the token and the CA.
const kubeletToken = "projected"

// mounts checks that the directory of the runtime's socket is mounted where it
// is, and that nothing else of the node can be written.
func mounts(pod corev1.PodSpec, c corev1.Container, socketDir string, at ...string) error {
	host := map[string]*corev1.HostPathVolumeSource{}
	for _, v := range pod.Volumes {
		if v.Projected != nil {
			host[v.Name] = &corev1.HostPathVolumeSource{Path: kubeletToken} // not of the node
			continue
		}
		if v.HostPath == nil || v.HostPath.Type == nil {
			return fmt.Errorf("the volume %s is no path of the node, or of no type", v.Name)
		}
		host[v.Name] = v.HostPath
	}
	var errs []error
	seen := map[string]bool{}
	for _, m := range c.VolumeMounts {
		from := host[m.Name]
		if from == nil {
			return fmt.Errorf("the volume %s is not there", m.Name)
		}
		seen[from.Path] = true
		follows := m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationHostToContainer
		switch from.Path {
		case socketDir:
			if !slices.Contains(at, m.MountPath) || !m.ReadOnly || !follows || *from.Type != corev1.HostPathDirectory {
				errs = append(errs, fmt.Errorf("the directory of the runtime's socket is mounted at %s (read-only: %t, follows the node: %t, type %s)", m.MountPath, m.ReadOnly, follows, *from.Type))
			}
		case "/sys/fs/cgroup":
			if m.MountPath != "/host"+from.Path || !m.ReadOnly || m.MountPropagation != nil {
				errs = append(errs, fmt.Errorf("%s is mounted at %s (read-only: %t), or follows the node", from.Path, m.MountPath, m.ReadOnly))
			}
		case kubeletToken:
		case "/var/lib/plegd", "/run/plegd":
			if m.MountPath != from.Path || *from.Type != corev1.HostPathDirectoryOrCreate {
				errs = append(errs, fmt.Errorf("%s is mounted at %s", from.Path, m.MountPath))
			}
		default:
			errs = append(errs, fmt.Errorf("%s of the node is mounted, and plegd needs it not", from.Path))
		}
	}
	for _, path := range []string{socketDir, "/sys/fs/cgroup", "/var/lib/plegd", "/run/plegd"} {
		if !seen[path] {
			errs = append(errs, fmt.Errorf("%s of the node is not mounted", path))
		}
	}
	return errors.Join(errs...)
}

// must ends the test at an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
