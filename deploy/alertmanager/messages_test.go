// Package alertmanager_test sends the alerts of ten faults to a real Alertmanager and
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

	"github.com/plegd/plegd/internal/drill"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/must"
)

func TestRoutes(t *testing.T) {
	must.Programs(t, "amtool")
	for labels, receiver := range map[string]string{
		"alertname=PLEGUnhealthy severity=critical":      "on-call",
		"alertname=PLEGReasonCritical severity=critical": "on-call",
		"alertname=PLEGFleetFault severity=critical":     "on-call",
		"alertname=PLEGReasonLasting severity=warning":   "operator",
		"alertname=PlegdFailing severity=warning":        "operator",
		"alertname=PLEGNodeInhibited severity=none":      "nobody",
		"alertname=Watchdog severity=none":               "operator", // kube-prometheus's
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
	EndsAt      time.Time         `json:"endsAt,omitzero"`
}

func nodeAlert(name, severity, node, summary string) alert {
	return alert{
		Labels:      map[string]string{"alertname": name, "severity": severity, "cluster": "prod", "job": "plegd", "instance": node, "node": node},
		Annotations: map[string]string{"summary": node + ": " + summary, "description": "The evidence is in plegd status.", "runbook_url": "https://example.org/"},
	}
}

// faults are ten faults and a drill, in the alerts of all the rules that fire for them: one that is
// sent of each, and those that are not.
func faults(t *testing.T) (sent, inhibited []alert) {
	t.Helper()
	for i, f := range []struct{ alert, reason, culprit, notReady string }{
		{"PLEGUnhealthy", "RuntimeFrozen", "runtime", "14:02:05"},
		{"PLEGReasonCritical", "RuntimeListStall", "helper", ""},
		{"PLEGUnhealthy", "NetworkNotReady", "", "14:01:00"},
		{"PLEGReasonCritical", "KubeletDown", "", "14:00:50"},
		{"PLEGUnhealthy", "RuntimeNotListening", "", "14:00:31"},
		{"PLEGUnhealthy", "RuntimeStorageStall", "mount", "14:03:00"},
		{"PLEGReasonCritical", "AcceptFDExhausted", "process", ""},
		{"PLEGReasonCritical", "RuntimeThrottled", "cgroup", ""},
		{"PLEGReasonCritical", "RuntimeStorageFull", "", ""},
	} {
		r, ok := health.Lookup(f.reason)
		if !ok {
			t.Fatalf("there is no reason %s", f.reason)
		}
		text := r.ID + ": " + r.Cause
		if f.culprit != "" {
			text += " (culprit: " + f.culprit + ")"
		}
		if f.notReady != "" {
			text += "; API NotReady expected at " + f.notReady + " UTC"
		}
		sent = append(sent, nodeAlert(f.alert, "critical", fmt.Sprintf("node-%d", 17+i), text+"; next: "+r.NextLine))
	}
	sent = append(sent, alert{
		Labels:      map[string]string{"alertname": "PLEGFleetFault", "severity": "critical", "cluster": "prod", "job": "plegd", "reason": "ShimStuck"},
		Annotations: map[string]string{"summary": "240 nodes have had ShimStuck within 30m; 98% of them runtime_version=2.4.2", "description": "Stop the rollout.", "runbook_url": "https://example.org/fleets"},
	})
	reason, _ := health.Lookup("ShimStuck")
	drilled, err := drill.NewAlert(drill.Options{Reason: reason, Name: "PLEGReasonCritical", Node: "canary", Start: time.Now(), For: time.Hour})
	must.Do(t, err)
	sent = append(sent, alert{Labels: drilled.Labels, Annotations: drilled.Annotations})
	inhibited = []alert{
		nodeAlert("PLEGReasonCritical", "critical", "node-17", strings.TrimPrefix(sent[0].Annotations["summary"], "node-17: ")),
		nodeAlert("PLEGFlapping", "warning", "node-18", "5 incidents"),
		nodeAlert("PLEGUnhealthy", "critical", "node-40", "drained: the kubelet is down"),
		nodeAlert("PLEGNodeInhibited", "none", "node-40", "cordoned"),
		{Labels: map[string]string{"alertname": "KubeNodeNotReady", "severity": "warning", "cluster": "prod", "job": "kube-state-metrics", "node": "node-17"}},
	}
	for i := range 240 {
		node := fmt.Sprintf("node-%d", 100+i)
		inhibited = append(inhibited, nodeAlert("PLEGReasonCritical", "critical", node, "ShimStuck: a shim does not answer"), nodeAlert("PLEGNodeInhibited", "none", node, "one of many nodes"))
	}
	return sent, inhibited
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
		Alerts      []alert
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		b.add("errors", r.URL.Path+": "+err.Error())
	}
	for _, a := range m.Alerts {
		b.add("operator", a.Labels["alertname"]+" "+a.Labels["node"])
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
		"group_wait: 20s", "group_wait: 2s", "group_wait: 30s", "group_wait: 2s", "group_wait: 10s", "group_wait: 1s",
		"group_interval: 1m", "group_interval: 5s").Replace(string(config))
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
	address := must.FreeAddress(t)
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

// post sends alerts to Alertmanager until it takes them.
func post(t *testing.T, base string, alerts []alert) {
	t.Helper()
	body, err := json.Marshal(alerts)
	must.Do(t, err)
	eventually(t, "the alerts are taken", func() bool {
		resp, err := http.Post(base+"/api/v2/alerts", "application/json", bytes.NewReader(body))
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// TestMessages: ten faults, one of them of 240 nodes, and a drill are a message each, with the cause
// in the title, for each receiver; a cordoned node is none, and kube-prometheus adds none. The message of
// an end names what has ended, and neither a time nor a step.
func TestMessages(t *testing.T) {
	must.Programs(t, "prometheus-alertmanager")
	b := &inbox{sent: map[string][]string{}}
	base := startAlertmanager(t, b)
	sent, inhibited := faults(t)
	post(t, base, slices.Concat(inhibited, sent))
	var want []string
	for _, a := range sent {
		want = append(want, a.Annotations["summary"])
	}
	compare(t, b, want)
	if got := b.titles("operator"); len(got) > 0 {
		t.Errorf("the operator was sent %q", got)
	}

	over := slices.Concat(sent, inhibited)
	for i := range over {
		over[i].EndsAt = time.Now()
	}
	post(t, base, over)
	for _, a := range sent {
		ended, _, _ := strings.Cut(a.Annotations["summary"], "; API NotReady")
		ended, _, _ = strings.Cut(ended, "; next:")
		want = append(want, "Ended: "+ended)
	}
	// Of a resolved alert PagerDuty and Opsgenie get no text.
	compareOne(t, b, "slack", want)
	compareOne(t, b, "mail", want)
	if errs := b.titles("errors"); len(errs) > 0 {
		t.Error(errs)
	}
}

func compare(t *testing.T, b *inbox, want []string) {
	t.Helper()
	for _, receiver := range []string{"slack", "pagerduty", "opsgenie", "mail"} {
		compareOne(t, b, receiver, want)
	}
}

func compareOne(t *testing.T, b *inbox, receiver string, want []string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	eventually(t, receiver+" has a message for each fault", func() bool { return len(b.titles(receiver)) >= len(want) })
	for i, title := range b.titles(receiver) {
		shortened := receiver == "slack" || receiver == "opsgenie"
		if i >= len(want) || title != want[i] && (!shortened || !strings.HasPrefix(want[i], strings.TrimRight(title, ".…"))) {
			t.Errorf("%s: message %d is %q, want %q", receiver, i, title, want)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	must.Eventually(t, 2*time.Minute, what, ok)
}
