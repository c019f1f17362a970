//go:build e2e

package kubelet

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/kubelet/record"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/kubernetes"
	"github.com/plegd/plegd/test/lab/runtime"
)

const (
	samplePeriod = 250 * time.Millisecond
	// startLimit ends a scenario whose node never becomes Ready: beside many others that takes minutes.
	startLimit = 10 * time.Minute
	// calm is how long a node must be Ready before its fault.
	calm = 12 * time.Second
	// aftermath is how long the recording continues after everything is well: a
	// kubelet may still write what its last update found.
	aftermath  = 15 * time.Second
	staticPods = 2
)

// lane is a node with a runtime, a kubelet and plegd, whose scenario is recorded.
type lane struct {
	*testing.T
	dir     string
	cluster *kubernetes.ControlPlane
	name    string // of the node
	version string // of the kubelet
	program string // the kubelet's
	images  string // socket of a runtime that has images
	options scenario

	node       *lab.Node
	containerd *runtime.Containerd // nil on a simulated runtime
	simulated  *simulated          // nil on a real one
	socket     string
	api        *kubernetes.Conditions
	kubelet    *lab.NodeProcess
	plegd      *lab.NodeProcess
	control    *http.Client
	recording  *record.Recording
	// credentials are the kubelet's, its token where nil.
	credentials map[string]any
	cutAPI      func() // closes the connections to the API server
	stop        func() // ends the recorder
}

// start starts a node and waits until its kubelet and plegd are well.
func (l *lane) start(t *testing.T) {
	l.T, l.dir = t, lab.Dir(t)
	if l.options.real {
		l.containerd = runtime.NewContainerd(t, runtime.ContainerdOptions{Node: true})
		l.node, l.socket = l.containerd.Node(), l.containerd.Socket
	} else {
		l.node = lab.NewNode(t)
		l.simulated = newSimulated(t, l.node, l.dir)
		l.socket = l.simulated.Socket
	}
	l.cutAPI = l.cluster.ForwardTo(l.node)
	l.api = l.cluster.WatchReady(t, l.name)
	l.configure()
	l.StartKubelet()
	l.startPlegd()
	lab.Eventually(t, startLimit, "the node is Ready and plegd is healthy", l.well)
}

// well returns an error while the node or plegd is not healthy.
func (l *lane) well() error {
	if last := l.api.Last(); !last.Ready {
		return fmt.Errorf("the node is not Ready: %+v\n%s", last, lab.Tail(l.kubeletLog(), 5))
	}
	s, err := l.sample()
	if err == nil && s.State != "healthy" {
		err = fmt.Errorf("plegd says %s %s", s.State, s.Reason)
	}
	return err
}

func (l *lane) path(name string) string { return filepath.Join(l.dir, name) }
func (l *lane) kubeletLog() string      { return l.path("kubelet.log") }

// kubeletConfig is the kubelet's configuration.
func (l *lane) kubeletConfig() map[string]any {
	config := kubernetes.KubeletConfig(l.dir, l.socket)
	// Its metrics and healthz on 10250 are for a token that the API server knows.
	config["authentication"] = map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}}
	config["authorization"] = map[string]any{"mode": "Webhook"}
	if l.simulated != nil {
		config["imageServiceEndpoint"] = "unix://" + l.images
	}
	if l.options.requestTimeout > 0 {
		config["runtimeRequestTimeout"] = l.options.requestTimeout.String()
	}
	if l.options.evented {
		config["featureGates"] = map[string]bool{"EventedPLEG": true}
	}
	if l.options.healthzOff {
		config["healthzPort"] = 0
	}
	return config
}

// configure writes the kubelet's files.
func (l *lane) configure() {
	l.Helper()
	kubernetes.MakeKubeletDirs(l, l.dir)
	lab.Must(l, os.Mkdir(l.path("state"), 0o755))
	l.writeJSON("kubelet.json", l.kubeletConfig())
	lab.Must(l, os.WriteFile(l.path("token"), []byte(kubernetes.MetricsToken+"\n"), 0o600))
	if l.containerd != nil {
		kubernetes.WriteStaticPods(l, l.dir, staticPods)
	}
}

func (l *lane) writeJSON(name string, v any) {
	l.Helper()
	kubernetes.WriteJSON(l, l.path(name), v)
}

func (l *lane) kubeconfig() string {
	l.Helper()
	if l.credentials == nil {
		return l.cluster.Kubeconfig(l.name)
	}
	return l.cluster.KubeconfigWith(l.name, l.credentials)
}

// useCredentials starts the kubelet again with other credentials.
func (l *lane) useCredentials(credentials map[string]any) {
	l.Helper()
	l.credentials = credentials
	l.kubelet.Kill()
	l.StartKubelet()
}

// acceptToken has the API server accept a token of the node, and returns it as credentials: a bootstrap token, which is
// a Secret.
func (l *lane) acceptToken() map[string]any {
	l.Helper()
	id := l.tokenID()
	const secret = "0123456789abcdef"
	l.cluster.Run("kubectl", "-n", "kube-system", "create", "secret", "generic", "bootstrap-token-"+id, "--type=bootstrap.kubernetes.io/token",
		"--from-literal=token-id="+id, "--from-literal=token-secret="+secret, "--from-literal=usage-bootstrap-authentication=true")
	return map[string]any{"token": id + "." + secret}
}

// revokeToken has the API server refuse the token once tokenCached has passed.
func (l *lane) revokeToken() {
	l.Helper()
	l.cluster.Run("kubectl", "-n", "kube-system", "delete", "secret", "bootstrap-token-"+l.tokenID())
}

// tokenID has six characters.
func (l *lane) tokenID() string { return ("000000" + l.name)[len(l.name):] }

// tokenRefused starts the kubelet with a token that is refused for a while, and does something in that time.
func (l *lane) tokenRefused(meanwhile func()) {
	l.Helper()
	l.cluster.Run("kubectl", "create", "clusterrolebinding", l.name, "--clusterrole=cluster-admin", "--group=system:bootstrappers")
	l.useCredentials(l.acceptToken())
	lab.Eventually(l, minute, "all is well", l.well)
	l.Sleep(calm)
	l.Fault()
	l.revokeToken()
	meanwhile()
	l.holdNotReady(100 * second)
	l.acceptToken()
	l.Recovery()
}

// StartKubelet starts the kubelet, for the first time or after its end.
func (l *lane) StartKubelet() {
	l.Helper()
	argv := append([]string{l.program}, kubernetes.KubeletFlags(l.dir, l.name)...)
	argv = append(argv, "--kubeconfig="+l.kubeconfig(), "--vmodule=kubelet_node_status=5,generic=5")
	l.kubelet = l.node.Start(l.kubeletLog(), argv...)
}

func (l *lane) startPlegd() {
	l.Helper()
	argv := []string{
		lab.Binary(l.T), "run", "--control-socket=" + l.path("plegd.sock"),
		"--state-dir=" + l.path("state"), "--web.listen-address=127.0.0.1:20290", "--log.format=json",
	}
	if !l.options.unnamed {
		argv = append(argv, "--runtime-endpoint="+l.socket)
	}
	if l.options.metrics {
		argv = append(argv, "--kubelet-metrics-url=https://127.0.0.1:10250/metrics",
			"--kubelet-token-file="+l.path("token"), "--kubelet-ca-file="+l.path("certs/kubelet.crt"))
	}
	l.plegd = l.node.Start(l.path("plegd.log"), argv...)
	l.control = lab.UnixClient(l.path("plegd.sock"), 5*time.Second)
}

// moveKubelet ends the runtime and starts the kubelet again with another one.
func (l *lane) moveKubelet() {
	l.Helper()
	old := l.simulated
	l.simulated = newSimulated(l.T, l.node, lab.Dir(l.T))
	l.socket = l.simulated.Socket
	l.writeJSON("kubelet.json", l.kubeletConfig())
	l.kubelet.Kill()
	l.StartKubelet()
	old.process.Kill()
}

// dropAPI appends ("-A") or deletes ("-D") the rules that drop all packets to and from the API server.
func (l *lane) dropAPI(action string) {
	l.Helper()
	for _, port := range []string{"--dport", "--sport"} {
		out, status := l.node.Run(os.Environ(), lab.LookPath(l, "iptables"), action, "INPUT", "-p", "tcp", port, kubernetes.APIPort, "-j", "DROP")
		if status != 0 {
			l.Fatalf("iptables: %s", out)
		}
	}
}

// sample asks plegd for its status.
func (l *lane) sample() (record.Sample, error) { return record.Ask(l.control, "http://plegd") }

// record begins to record; Finish ends it.
func (l *lane) record(r *record.Recording) {
	l.recording = r
	l.stop = lab.Every(l, samplePeriod, func() {
		if s, err := l.sample(); err == nil {
			r.Samples = append(r.Samples, s)
		}
		if r.WantMetrics && !r.MetricsRead {
			r.MetricsRead = l.readsKubelet()
		}
	})
}

// readsKubelet reports whether plegd has read the kubelet's own metrics.
func (l *lane) readsKubelet() bool {
	_, text, err := lab.Get(l.control, "http://plegd/metrics")
	return err == nil && strings.Contains(text, "\npleg_kubelet_last_seen_seconds ")
}

// Fault notes the beginning of the fault.
func (l *lane) Fault() { l.recording.Fault = time.Now() }

// PredictedWithin notes that plegd must predict the change from a while after now on.
func (l *lane) PredictedWithin(d time.Duration) {
	l.recording.PredictedAfter = time.Since(l.recording.Fault) + d
}

// Recovery notes the end of the fault.
func (l *lane) Recovery() { l.recording.Recovery = time.Now() }

// Sleep waits: the length of the fault is under test.
func (l *lane) Sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.Context().Done():
	}
}

// AwaitReady waits until the API shows the node Ready or not, and reports whether it came within the limit.
func (l *lane) AwaitReady(ready bool, limit time.Duration) bool {
	return lab.Within(limit, func() error {
		if l.api.Last().Ready != ready && l.Context().Err() == nil {
			return errors.New("not yet")
		}
		return nil
	}) == nil
}

// holdNotReady waits until the API shows the node NotReady, for at most a limit, and for hold.
func (l *lane) holdNotReady(limit time.Duration) {
	l.AwaitReady(false, limit)
	l.Sleep(hold)
}

// heal ends the fault of the simulated runtime.
func (l *lane) heal() {
	l.Recovery()
	l.simulated.Fail("")
}

// Settle waits until the node is Ready and plegd is healthy, for at most a limit, and a while longer.
func (l *lane) Settle(limit time.Duration) {
	l.Helper()
	since, start := time.Time{}, time.Now()
	for time.Since(start) < limit {
		if l.well() != nil {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > aftermath {
			return
		}
		l.Sleep(samplePeriod)
	}
	l.Errorf("not well %s after the recovery: %v", limit, l.well())
}

// Finish ends the recording and adds what the API and the kubelet's log hold.
func (l *lane) Finish() *record.Recording {
	l.Helper()
	l.stop()
	r := l.recording
	r.End = time.Now()
	if r.Recovery.IsZero() {
		r.Recovery = r.End
	}
	r.Writes = l.api.Since(time.Time{})
	skips, err := record.ReadSkips(l.kubeletLog(), r.Date)
	lab.Must(l, err)
	r.Skips = skips
	return r
}

// removeCNI removes containerd's network configuration.
func (l *lane) removeCNI() {
	l.Helper()
	lab.Must(l, os.Remove(l.containerd.CNIConfig))
}
