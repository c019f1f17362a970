// Package alertmanager_test sends the alerts of five faults to a real Alertmanager and
// compares the messages that Slack, PagerDuty, Opsgenie and mail would get.
package alertmanager_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/must"
)

// need skips the test where a program is not installed; in CI it must be.
func need(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err == nil {
		return
	}
	if ci := os.Getenv("CI"); ci != "" && ci != "false" && ci != "0" {
		t.Fatalf("%s is not installed; see test/e2e/install-deps.sh", name)
	}
	t.Skipf("SKIPPED: %s is not installed; see test/e2e/install-deps.sh", name)
}

func TestRoutes(t *testing.T) {
	need(t, "amtool")
	for labels, receiver := range map[string]string{
		"alertname=PLEGUnhealthy severity=critical":        "on-call",
		"alertname=PLEGFleetCommonCause severity=critical": "on-call",
		"alertname=PLEGReasonWarning severity=warning":     "operator",
		"alertname=PlegdDown severity=warning":             "operator",
		"alertname=PLEGNodeInFleetFault severity=none":     "nobody",
		"alertname=Watchdog severity=none":                 "operator", // kube-prometheus's
	} {
		args := append([]string{"config", "routes", "test", "--config.file=alertmanager.yml", "--verify.receivers=" + receiver}, strings.Fields(labels)...)
		if out, err := exec.Command("amtool", args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", labels, out)
		}
	}
}

// An alert is one as Prometheus sends it.
type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func unhealthy(node, reason, culprit, summary string) alert {
	return alert{
		map[string]string{"alertname": "PLEGUnhealthy", "severity": "critical", "cluster": "prod", "job": "plegd", "instance": node, "node": node, "reason": reason, "culprit": culprit},
		map[string]string{"summary": node + ": " + reason + ": " + summary, "description": "The evidence is in plegd status.", "runbook_url": "https://example.org/" + reason},
	}
}

// faults are five faults, in the alerts of all the rules that fire for them.
func faults() []alert {
	frozen := unhealthy("node-17", "RuntimeFrozen", "runtime", "containerd stopped; API NotReady in 1m19s; next: plegd status names the stopped process; continue it")
	warning := unhealthy("node-17", "RuntimeFrozen", "runtime", "the same as a warning")
	warning.Labels = map[string]string{"alertname": "PLEGReasonWarning", "severity": "warning", "cluster": "prod", "instance": "node-17", "reason": "RuntimeStarved"}
	all := []alert{
		frozen, warning,
		unhealthy("node-18", "RuntimeListStall", "helper", "runc holds up the lists; API NotReady in 48s; next: plegd status names the holder; end it before you restart the runtime"),
		unhealthy("node-19", "NetworkNotReady", "process", "calico-node has no pod network; next: look at the CNI plugin's pod on this node"),
		unhealthy("node-20", "KubeletDown", "", "runtime is well, the kubelet is down; next: read the kubelet's log"),
		{
			map[string]string{"alertname": "PLEGFleetCommonCause", "severity": "critical", "cluster": "prod", "job": "plegd", "reason": "ShimStuck", "label": "runtime_version", "value": "2.4.2"},
			map[string]string{"summary": "41 nodes ShimStuck in 12 min; 40 of them runtime_version=2.4.2 (of 612 nodes with it; 1 of 4388 others)", "description": "Stop the rollout.", "runbook_url": "https://example.org/fleets"},
		},
	}
	for i := range 41 {
		node := fmt.Sprintf("node-%d", 100+i)
		one := unhealthy(node, "ShimStuck", "shim", "containerd-shim does not answer the runtime")
		mark := alert{map[string]string{"alertname": "PLEGNodeInFleetFault", "severity": "none", "cluster": "prod", "job": "plegd", "instance": node, "reason": "ShimStuck"}, one.Annotations}
		all = append(all, one, mark)
	}
	return all
}

// inbox records what each receiver is sent, as texts of titles.
type inbox struct {
	mu   sync.Mutex
	sent map[string][]string
}

func (b *inbox) add(receiver, title string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent[receiver] = append(b.sent[receiver], title)
}

func (b *inbox) titles(receiver string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	titles := slices.Clone(b.sent[receiver])
	slices.Sort(titles)
	return titles
}

// ServeHTTP takes the requests for Slack, PagerDuty and Opsgenie.
func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		Attachments []struct{ Title, Text string }
		Payload     struct{ Summary, Class, Component string }
		Message     string
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		b.add("errors", r.URL.Path+": "+err.Error())
	}
	switch {
	case len(m.Attachments) > 0:
		b.add("slack", m.Attachments[0].Title)
	case m.Payload.Summary != "":
		b.add("pagerduty", m.Payload.Summary)
		w.WriteHeader(http.StatusAccepted)
	case m.Message != "":
		b.add("opsgenie", m.Message)
		w.WriteHeader(http.StatusAccepted)
	}
	_, _ = io.WriteString(w, "{}")
}

// mail takes mails and records their subjects.
func (b *inbox) mail(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			c := textproto.NewConn(conn)
			for answer := "220 test"; answer != ""; {
				_ = c.PrintfLine("%s", answer)
				line, err := c.ReadLine()
				switch answer = "250 ok"; {
				case err != nil:
					answer = ""
				case line == "QUIT":
					answer = "221 bye"
				case line == "DATA":
					_ = c.PrintfLine("354 go")
					text, _ := c.ReadDotBytes()
					if m, err := mail.ReadMessage(bytes.NewReader(text)); err == nil {
						subject, _ := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
						b.add("mail", subject)
					}
				}
			}
		}()
	}
}

// startAlertmanager runs one with the deployed configuration, whose on-call receiver is all
// four kinds and whose waits are a tenth.
func startAlertmanager(t *testing.T, b *inbox) (base string) {
	t.Helper()
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	smtp, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	t.Cleanup(func() { _ = smtp.Close() })
	go b.mail(smtp)
	config, err := os.ReadFile("alertmanager.yml")
	must.Do(t, err)
	text := strings.NewReplacer("http://localhost:9095", server.URL, "localhost:25", smtp.Addr().String(),
		"group_wait: 20s", "group_wait: 2s", "group_wait: 30s", "group_wait: 2s").Replace(string(config))
	// on-call is all of them at once.
	_, receivers, _ := strings.Cut(text, "  - name: slack\n")
	body := regexp.MustCompile(`(?m)^  - name: .*\n`).ReplaceAllString(receivers, "")
	text = regexp.MustCompile(`(?s)  - name: on-call\n.*`).ReplaceAllLiteralString(text, "  - name: on-call\n"+body)
	dir := t.TempDir()
	tmpl, err := os.ReadFile("plegd.tmpl")
	must.Do(t, err)
	for name, content := range map[string][]byte{"alertmanager.yml": []byte(text), "plegd.tmpl": tmpl} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	address := l.Addr().String()
	_ = l.Close()
	log := &bytes.Buffer{}
	cmd := exec.Command("prometheus-alertmanager", "--config.file="+filepath.Join(dir, "alertmanager.yml"), "--storage.path="+dir,
		"--web.listen-address="+address, "--cluster.listen-address=")
	cmd.Stderr = log
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return "http://" + address
}

// TestMessages: five faults, one of them of 41 nodes, are five messages with the cause in the
// title, for each receiver.
func TestMessages(t *testing.T) {
	need(t, "prometheus-alertmanager")
	b := &inbox{sent: map[string][]string{}}
	base := startAlertmanager(t, b)
	body, err := json.Marshal(faults())
	must.Do(t, err)
	eventually(t, "the alerts are taken", func() bool {
		resp, err := http.Post(base+"/api/v2/alerts", "application/json", bytes.NewReader(body))
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	var want []string
	for _, a := range faults()[:6] {
		if a.Labels["severity"] == "critical" {
			want = append(want, a.Annotations["summary"])
		}
	}
	slices.Sort(want)
	for _, receiver := range []string{"slack", "pagerduty", "opsgenie", "mail"} {
		eventually(t, receiver+" has a message for each fault", func() bool { return len(b.titles(receiver)) >= len(want) })
		for i, title := range b.titles(receiver) {
			shortened := receiver == "slack" || receiver == "opsgenie"
			if i >= len(want) || title != want[i] && (!shortened || !strings.HasPrefix(want[i], strings.TrimRight(title, ".…"))) {
				t.Errorf("%s: message %d is %q, want %q", receiver, i, title, want)
			}
		}
	}
	if errs := b.titles("errors"); len(errs) > 0 {
		t.Error(errs)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(40 * time.Second); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after 40 s: %s", what)
		}
	}
}
