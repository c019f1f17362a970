//go:build e2e

package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
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
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 0)
	for i, text := range evil {
		uid := fmt.Sprint("uid", i, text)
		s := sandboxOf(fmt.Sprint("s", i, text), uid)
		s.Metadata.Name, s.Metadata.Namespace = text, text
		c := containerOf(fmt.Sprint("c", i, text), uid, text)
		c.Labels["io.kubernetes.pod.name"], c.Labels["io.kubernetes.pod.namespace"] = text, text
		rt.AddRawSandbox(s)
		rt.AddRawContainer(c)
	}
	all := strings.Join(evil, " ")
	rt.SetVersion(all, all)
	rt.Set("ContainerStatus", fakeruntime.Error(codes.Unknown, all))
	dir := lab.Dir(t)
	notify := listenNotify(t, filepath.Join(dir, "notify"))
	p := start(t, socket, options{env: []string{"NOTIFY_SOCKET=" + filepath.Join(dir, "notify")}})
	p.awaitReason("PodInspectionStall")
	p.look(t)
	rt.SetCondition(runtimeapi.NetworkReady, false, all, all)
	p.awaitReason("NetworkNotReady")
	p.look(t)
	rt.Set("ListContainers", fakeruntime.Error(codes.Unknown, all))
	p.await("the lists fail", func(d *document) bool { return d.Relist.Failures > 5 })
	p.look(t)
	rt.Set("ListContainers")
	rt.Set("ContainerStatus")
	rt.SetCondition(runtimeapi.NetworkReady, true, "", "")
	p.awaitReason("")
	p.stop()
	for _, m := range notify() {
		for line := range strings.Lines(m) {
			if name, _, ok := strings.Cut(line, "="); !ok || name != "READY" && name != "STATUS" && name != "STOPPING" && name != "WATCHDOG" {
				t.Errorf("systemd was told %q", line)
			}
			if strings.IndexFunc(strings.TrimSuffix(line, "\n"), commands) >= 0 {
				t.Errorf("systemd was told %q", line)
			}
		}
	}
}

// forwarded asks with the header of a proxy.
var forwarded = &http.Client{Timeout: 10 * time.Second, Transport: forwardedTransport{}}

type forwardedTransport struct{}

func (forwardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	return http.DefaultTransport.RoundTrip(r)
}

// look asks for everything that plegd shows, and looks for what has got out of
// its text.
func (p *plegd) look(t *testing.T) {
	t.Helper()
	id := p.incident(t)
	for _, c := range []struct {
		name string
		get  func(path string) (int, string, error)
	}{
		{"loopback", func(path string) (int, string, error) { return p.get(p.web, path) }},
		// As a proxy asks for a client on another host.
		{"another host", func(path string) (int, string, error) { return p.get(forwarded, path) }},
		{"control socket", func(path string) (int, string, error) { return p.get(p.local, path) }},
	} {
		for _, path := range []string{"/", "/api/v1/status", "/metrics", "/healthz", "/api/v1/incidents", "/api/v1/incidents/" + id} {
			_, body, err := c.get(path)
			if err != nil {
				t.Errorf("%s over %s: %v", path, c.name, err)
				continue
			}
			// The exposition format and HTML have no escape for these, nor need one.
			if path == "/healthz" || strings.HasPrefix(path, "/api/") {
				noCommands(t, path+" over "+c.name, body)
			}
			for _, s := range []string{"<script>alert", "<img src=x", "<a href=\"javascript", "\nHTTP/1.1 200", "\n{\"level\""} {
				if strings.Contains(body, s) && path != "/healthz" { // that is text/plain, nosniff
					t.Errorf("%s over %s has %q in it", path, c.name, s)
				}
			}
			if c.name == "another host" && path != "/metrics" && strings.Contains(body, "uid0a") {
				t.Errorf("%s names pods to another host", path)
			}
		}
	}
	for _, args := range [][]string{
		{"status", "--control-socket=" + p.ControlSocket},
		{"status", "-o", "json", "--control-socket=" + p.ControlSocket},
		{"check", "--control-socket=" + p.ControlSocket},
		{"check", "-o", "json", "--control-socket=" + p.ControlSocket},
		{"check", "-o", "nagios", "--control-socket=" + p.ControlSocket},
		{"check", "-o", "npd", "--control-socket=" + p.ControlSocket},
		{"incidents", "--control-socket=" + p.ControlSocket},
		{"incidents", id, "--control-socket=" + p.ControlSocket},
		{"incidents", id, "-o", "json", "--control-socket=" + p.ControlSocket},
	} {
		out := run(t, args...)
		what := "plegd " + strings.Join(args[:len(args)-1], " ")
		noCommands(t, what, out)
		if out == "" || strings.Contains(out, "\n{\"level\"") {
			t.Errorf("%s printed %q", what, clip(out, 500))
		}
	}
}

// incident is the id of the newest incident, which holds what the runtime says.
func (p *plegd) incident(t *testing.T) string {
	t.Helper()
	_, body, err := p.get(p.local, "/api/v1/incidents")
	var list []struct{ ID string }
	if err == nil {
		err = json.Unmarshal([]byte(body), &list)
	}
	if err != nil || len(list) == 0 {
		t.Fatalf("%d incidents, %v: %s", len(list), err, clip(body, 500))
	}
	if _, body, err := p.get(p.local, "/api/v1/incidents/"+list[0].ID); err != nil || !strings.Contains(body, "uid0a") && !strings.Contains(body, forged) {
		t.Errorf("the incident %s does not hold what this test looks for: %v %s", list[0].ID, err, clip(body, 500))
	}
	return list[0].ID
}

func noCommands(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, commands); i >= 0 {
		t.Errorf("%s has %+q in it: %q", what, []rune(text[i:])[0], clip(text[max(0, i-60):], 120))
	}
}
