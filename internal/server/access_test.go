package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

func TestOverLoopback(t *testing.T) {
	for _, tt := range []struct {
		name, from, host, header string
		want                     bool
	}{
		{"loopback", "127.0.0.1:4711", "localhost:20290", "", true},
		{"IPv6", "[::1]:4711", "[::1]:20290", "", true},
		{"IPv4 in IPv6", "[::ffff:127.0.0.1]:4711", "localhost", "", true},
		{"another host", "10.0.0.7:4711", "localhost:20290", "", false},
		{"a page of another site", "127.0.0.1:4711", "evil.example:20290", "", false},
		{"a proxy here", "127.0.0.1:4711", "localhost:20290", "X-Forwarded-For", false},
		{"a proxy here that adds no header", "127.0.0.1:4711", "localhost:20290", "HTTP/1.0", false},
		{"a claim to be local", "10.0.0.7:4711", "localhost", "Forwarded", false},
		{"an empty claim", "127.0.0.1:4711", "localhost", "X-Real-IP", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr, r.Host = tt.from, tt.host
		if tt.header == "HTTP/1.0" {
			r.ProtoMinor = 0
		} else if tt.header != "" {
			r.Header.Set(tt.header, map[bool]string{true: "for=127.0.0.1", false: ""}[tt.header == "Forwarded"])
		}
		check.Equal(t, overLoopback(r), tt.want, "%s", tt.name)
	}
}

// TestRootOnly: over loopback root's client sees everything. The client of another user, and one
// whose user cannot be read, sees the public summary.
func TestRootOnly(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be two users")
	}
	failing := func(context.Context, netip.AddrPort, netip.AddrPort) (uint32, error) {
		return 0, errors.New("no sock_diag")
	}
	for name, tt := range map[string]struct {
		uid   int
		owner SocketOwner
		want  string
	}{
		"root":                {0, proc.TCPOwner, "full"},
		"nobody":              {65534, proc.TCPOwner, "public"},
		"a proxy's user":      {33, proc.TCPOwner, "public"},
		"without a sock_diag": {0, failing, "public"},
	} {
		l := listen(t)
		h := testHandler(viewtest.NewSource(viewtest.Degraded()), false, func(o *HandlerOptions) { o.Access = RootOrAuthenticated(tt.owner) })
		start(t, NewWebServer(nil, []net.Listener{l}, "", h, nobody, func() {}, newLogRecorder().log))
		check.Equal(t, seenAs(t, tt.uid, l.Addr().String()), tt.want, "%s sees", name)
	}
}

// seenAs is what a client of a user sees.
func seenAs(t *testing.T, uid int, address string) string {
	t.Helper()
	conn := evidencetest.DialAs(t, uid, address)
	defer conn.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+view.PathStatus, http.NoBody)
	must.Do(t, err)
	must.Do(t, request.Write(conn))
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	must.Do(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must.Do(t, err)
	if strings.Contains(string(body), `"facts"`) {
		return "full"
	}
	return "public"
}

// TestWebAuth: the demands of a web configuration.
func TestWebAuth(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	file := filepath.Join(dir, "web.yml")
	if _, err := readWebSettings(file, nil); err == nil {
		t.Error("a missing file counts as a configuration")
	}
	for _, tt := range []struct {
		content      string
		users, certs bool
	}{
		{"", false, false},
		{tlsPart, false, false},
		{usersPart(t), true, false},
		{mutualTLS, false, true},
		// Any certificate at all is no proof of anything.
		{tlsPart + "  client_auth_type: RequireAnyClientCert\n", false, false},
		{tlsPart + "  client_ca_file: cert.pem\n  client_auth_type: VerifyClientCertIfGiven\n", false, false},
	} {
		write(t, file, tt.content)
		settings, err := readWebSettings(file, nil)
		must.Do(t, err)
		if users, certs := settings.demands(); users != tt.users || certs != tt.certs {
			t.Errorf("%q: users %v, certificates %v", tt.content, users, certs)
		}
	}
	// A user that is not configured is refused as a wrong password is. Over the network the comparison may
	// take longer than a response on a loaded machine.
	write(t, file, usersPart(t))
	settings, err := readWebSettings(file, nil)
	must.Do(t, err)
	for user, want := range map[string]int{"prometheus": http.StatusNotFound, "root": http.StatusUnauthorized} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.SetBasicAuth(user, "secret")
		w := httptest.NewRecorder()
		settings.serve(w, r, newPasswords(), http.NotFoundHandler())
		check.Equal(t, w.Code, want, "%s", user)
	}
}

// leak is a pod's name that no part of plegd knows as such.
const leak = "api-7d9f8b6c5-x2x4v"

// leaking is a snapshot with the name in every text but the fixed words of states,
// severities and kinds, and the runtime's name and version.
func leaking() facts.Snapshot {
	s := viewtest.Filled("get container payments/" + leak + ": no such task")
	s.PlegdVersion, s.State = "1.0.0", facts.StateUnhealthy
	s.Active = append(s.Active, facts.Active{ID: "RuntimeUnresponsive", Severity: facts.SeverityCritical, Evidence: []string{leak}})
	s.Active[0].Severity, s.Reason = facts.SeverityWarning, "RuntimeUnresponsive"
	s.Facts.Runtime.Name, s.Facts.Runtime.Version = "containerd", "2.4.2"
	s.Culprit = &facts.Link{Kind: facts.KindContainer, Name: leak}
	s.KubeletMessage = "[container runtime is down, container runtime network not ready: NetworkReady=false reason:X message:" + leak + "]"
	return s
}

// TestNoNameLeaks looks for a name that is in every text of a snapshot in every
// answer to another host.
func TestNoNameLeaks(t *testing.T) {
	s := leaking()
	one := viewtest.Incident()
	one.KubeletMessage, one.Timeline = s.KubeletMessage, []incident.Moment{{Snapshot: &s}}
	src := viewtest.NewSource(s)
	src.List = []incident.Summary{one.Summary}
	for _, full := range []bool{true, false} {
		h := testHandler(src, full, func(o *HandlerOptions) {
			o.Incident = func(context.Context, string) (*incident.Incident, error) { return one, nil }
		})
		for path, code := range map[string]int{
			view.PathMetrics: 200, view.PathStatus: 200, "/": 200, view.PathHealthz: 503, view.PathIncidents: 403,
			view.PathIncidents + "/" + one.ID: 403, view.PathIncidentPages + "/" + one.ID: 403,
		} {
			w := answer(h, path)
			text := w.Body.String()
			if n := strings.Count(text, leak); !full && (n > 0 || w.Code != code) {
				t.Errorf("%s: %d with the name %d times:\n%s", path, w.Code, n, text)
			} else if full && n == 0 && path != view.PathIncidents && path != view.PathMetrics {
				t.Errorf("%s does not hold the name where it may: it proves nothing", path)
			}
		}
	}
}

// TestNoNameInCulprit: /metrics and the summary name the kind of any culprit
// and no container.
func TestNoNameInCulprit(t *testing.T) {
	for _, l := range []facts.Link{
		{Kind: facts.KindCall}, {Kind: facts.KindContainer}, {Kind: facts.KindPod}, {Kind: facts.KindMount},
		{Kind: facts.KindKernel}, {Kind: facts.KindCgroup, Name: "/kubepods.slice/kubepods-pod" + leak + ".slice"},
		{Kind: facts.KindShim, Name: "containerd-shim"},
	} {
		l.Pod, l.RuntimeID, l.Evidence = leak, leak, leak
		if l.Name == "" {
			l.Name = leak
		}
		s := viewtest.Stalled()
		s.Culprit, s.Chain = &l, []facts.Link{l}
		for _, path := range []string{view.PathMetrics, view.PathStatus, "/"} {
			text := answer(testHandler(viewtest.NewSource(s), false), path).Body.String()
			if strings.Contains(text, leak) || !strings.Contains(text, string(l.Kind)) {
				t.Errorf("culprit %s: %s\n%s", l.Kind, path, text)
			}
		}
	}
}

// TestPublicSummary keeps the example in the documentation true.
func TestPublicSummary(t *testing.T) {
	h := testHandler(viewtest.NewSource(viewtest.Unhealthy()), false)
	viewtest.Golden(t, viewtest.DocsDir+"api/public.json", answer(h, view.PathStatus).Body.String())
	for path, all := range map[string][]string{
		"/":                         {"<h1>RuntimeUnresponsive</h1>", "public summary", "What to do", "NotReady"},
		view.PathHealthz:            {"unhealthy: RuntimeUnresponsive\nkubelet: [container runtime is down, PLEG is not healthy"},
		view.PathStatus + "?o=line": {"unhealthy RuntimeUnresponsive"},
		view.PathStatus + "?o=text": {"UNHEALTHY: RuntimeUnresponsive", "public summary"},
	} {
		for _, want := range all {
			if body := answer(h, path).Body; !strings.Contains(body.String(), want) {
				t.Errorf("no %q for another host at %s:\n%s", want, path, body)
			}
		}
	}
}

// TestStuckJudge: /-/healthy fails once nothing is judged any more.
func TestStuckJudge(t *testing.T) {
	for age, code := range map[time.Duration]int{time.Second: 200, time.Minute: 503} {
		h := testHandler(viewtest.NewSource(viewtest.Healthy()), false, func(o *HandlerOptions) {
			o.Judged = func() time.Time { return viewtest.Ago(age) }
		})
		check.Equal(t, answer(h, view.PathHealthy).Code, code, "judged %s ago", age)
	}
}
