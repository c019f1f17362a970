//go:build e2e

package hostile

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/lab"
)

// evil are texts that want to be more than texts: to a log, a terminal, a page.
var evil = []string{
	"a\n{\"level\":\"error\",\"time\":\"2026-01-01T00:00:00Z\",\"msg\":\"" + forged + "\"}\nb",
	"\x1b[2J\x1b]0;" + forged + "\x07\x1b[31mred",
	"c1 \u009b31m \u0085 del \x7f",
	"bidi \u202e" + forged + "\u2066 zero\u200b width\ufeff",
	"<script>alert('" + forged + "')</script><img src=x onerror=alert(1)>",
	"\"><a href=\"javascript:alert(1)\">" + forged + "</a>",
	"%s%n{{.}}${jndi:x}",
	"\r\n\r\nHTTP/1.1 200 OK\r\nX-" + forged + ": 1",
}

// TestInjection puts hostile texts wherever a runtime may put a text, and looks
// at everything that plegd shows.
func TestInjection(t *testing.T) {
	countAttack(t, lists)
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 0)
	for i, text := range evil {
		uid := fmt.Sprint("uid", i, text)
		s, c := podOf("")
		s.Id, s.Metadata.Uid, s.Metadata.Name, s.Metadata.Namespace = fmt.Sprint("s", i, text), uid, text, text
		c.Id, c.PodSandboxId, c.Metadata.Name = fmt.Sprint("c", i, text), uid, text
		for label, value := range map[string]string{"uid": uid, "name": text, "namespace": text} {
			c.Labels["io.kubernetes.pod."+label] = value
		}
		c.Labels["io.kubernetes.container.name"] = text
		rt.AddRawSandbox(s)
		rt.AddRawContainer(c)
	}
	all := strings.Join(evil, " ")
	rt.SetVersion(all, all)
	rt.Set("ContainerStatus", fakeruntime.Error(codes.Unknown, all))
	dir := lab.Dir(t)
	notify := listenNotify(t, filepath.Join(dir, "notify"))
	p := start(t, socket, lab.PlegdOptions{Env: []string{"NOTIFY_SOCKET=" + filepath.Join(dir, "notify")}})
	p.awaitReason("PodInspectionStall")
	p.look(t)
	rt.SetCondition(runtimeapi.NetworkReady, false, all, all)
	p.awaitReason("NetworkNotReady")
	p.look(t)
	rt.Set("ListContainers", fakeruntime.Error(codes.Unknown, all))
	p.await("the lists fail", func(d lab.Status) bool { return d.Relist.Failures > 5 })
	p.look(t)
	rt.Set("ListContainers")
	rt.Set("ContainerStatus")
	rt.SetCondition(runtimeapi.NetworkReady, true, "", "")
	p.awaitReason()
	p.stop()
	for _, m := range notify() {
		for line := range strings.Lines(m) {
			if name, _, ok := strings.Cut(line, "="); !ok || !slices.Contains([]string{"READY", "STATUS", "STOPPING", "WATCHDOG"}, name) {
				t.Errorf("systemd got %q", line)
			}
			noCommands(t, "a message to systemd", strings.TrimSuffix(line, "\n"))
		}
	}
}

// listenNotify stands in for systemd: messages ends it and returns the received messages.
func listenNotify(t *testing.T, path string) (messages func() []string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	lab.Must(t, err)
	received := make(chan []string)
	go func() {
		var all []string
		for b := make([]byte, 1<<20); ; {
			n, err := conn.Read(b)
			if err != nil {
				received <- all
				return
			}
			all = append(all, string(b[:n]))
		}
	}()
	return func() []string {
		_ = conn.Close()
		return <-received
	}
}

// forwarded asks with the header of a proxy: for a client on another host.
type forwarded struct{}

func (forwarded) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	return http.DefaultTransport.RoundTrip(r)
}

// look reads every output of plegd, and searches it for text that has got out of its place.
func (p *plegd) look(t *testing.T) {
	t.Helper()
	id := p.incident(t)
	for name, client := range map[string]*http.Client{
		"loopback": http.DefaultClient, "control socket": p.local,
		"another host": {Timeout: 10 * time.Second, Transport: forwarded{}},
	} {
		for _, path := range []string{"/", "/api/v1/status", "/metrics", "/healthz", "/api/v1/incidents", "/api/v1/incidents/" + id} {
			_, body, err := lab.Get(client, "http://"+p.Address+path)
			if err != nil {
				t.Errorf("%s over %s: %v", path, name, err)
			}
			// The exposition format and HTML have no escape for these, nor need one.
			if path == "/healthz" || strings.HasPrefix(path, "/api/") {
				noCommands(t, path+" over "+name, body)
			}
			for _, s := range []string{"<script>alert", "<img src=x", "<a href=\"javascript", "\nHTTP/1.1 200", "\n{\"level\""} {
				if strings.Contains(body, s) && path != "/healthz" { // that is text/plain, nosniff
					t.Errorf("%s over %s has %q in it", path, name, s)
				}
			}
			if name == "another host" && path != "/metrics" && strings.Contains(body, "uid0a") {
				t.Errorf("%s names pods to another host", path)
			}
		}
	}
	for _, command := range []string{
		"status", "status -o json", "check", "check -o json", "check -o nagios", "check -o npd",
		"incidents", "incidents " + id, "incidents -o json " + id,
	} {
		out := run(t, append(strings.Fields(command), "--control-socket="+p.ControlSocket)...)
		noCommands(t, "plegd "+command, out)
		if out == "" || strings.Contains(out, "\n{\"level\"") {
			t.Errorf("plegd %s printed %q", command, clip(out, 500))
		}
	}
}

// incident is the id of the newest incident, which holds the runtime's texts.
func (p *plegd) incident(t *testing.T) string {
	t.Helper()
	var list []incident.Summary
	if err := lab.GetJSON(p.local, "http://plegd/api/v1/incidents", &list); err != nil || len(list) == 0 {
		t.Fatalf("%d incidents, %v", len(list), err)
	}
	_, body, err := lab.Get(p.local, "http://plegd/api/v1/incidents/"+list[0].ID)
	if err != nil || !strings.Contains(body, "uid0a") && !strings.Contains(body, forged) {
		t.Errorf("the incident %s does not hold the hostile texts: %v %s", list[0].ID, err, clip(body, 500))
	}
	return list[0].ID
}
