package drill

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// newAlert returns a drill's alert; deploy/prometheus compares those of all reasons with the rules'.
func newAlert(t *testing.T, o Options) Alert {
	t.Helper()
	if o.Reason.ID == "" {
		o.Reason = health.Reasons()[0]
	}
	a, err := NewAlert(o)
	must.Do(t, err)
	return a
}

// TestAlert: an alert is marked as a drill, ends, and has the labels that are asked for; one that
// the rules do not raise is refused.
func TestAlert(t *testing.T) {
	start := time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC)
	shim, _ := health.Lookup("ShimStuck")
	a := newAlert(t, Options{Reason: shim, Name: "PLEGReasonWarning", Node: "node-1", Labels: map[string]string{"cluster": "eu", "severity": "page"}, Start: start, For: time.Minute})
	want := map[string]string{"alertname": "PLEGReasonWarning", "severity": "page", "cluster": "eu", "job": "plegd", "instance": "node-1:20290", "node": "node-1", "reason": "ShimStuck", "drill": "true"}
	if !maps.Equal(a.Labels, want) || !a.EndsAt.Equal(start.Add(time.Minute)) {
		t.Errorf("labels %v, want %v; it ends at %s", a.Labels, want, a.EndsAt)
	}
	if !strings.HasPrefix(a.Annotations["summary"], "DRILL: node-1: ShimStuck: ") || !strings.HasPrefix(a.Annotations["description"], "This is a drill: nothing is wrong with node-1. ") {
		t.Errorf("texts %v", a.Annotations)
	}
	// What a reason raises at its worst.
	frozen, _ := health.Lookup("RuntimeFrozen")
	check.Equal(t, newAlert(t, Options{Reason: frozen}).Labels["alertname"], "PLEGReasonCritical", "the alert of RuntimeFrozen")
	for _, tt := range []struct{ reason, name, want string }{
		{"ShimStuck", "PLEGFleetFault", "want PLEGReasonCritical or PLEGReasonWarning or PLEGUnhealthy"},
		{"TooManyContainers", "PLEGReasonCritical", "want PLEGReasonLasting or PLEGUnhealthy"},
		{"Starting", "", "no alert fires for Starting (info)"},
		{"Starting", "PLEGUnhealthy", "no alert fires for Starting (info)"},
	} {
		reason, _ := health.Lookup(tt.reason)
		_, err := NewAlert(Options{Reason: reason, Name: tt.name})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v", tt.reason, tt.name, err)
		}
	}
}

// TestPost: one request with one alert; an error is one harmless line, and a redirect goes nowhere.
func TestPost(t *testing.T) {
	var got []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.URL.Path) }))
	defer elsewhere.Close()
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string // a part of the error; empty: accepted
	}{
		"accepted": {func(w http.ResponseWriter, r *http.Request) {
			var alerts []Alert
			err := json.NewDecoder(r.Body).Decode(&alerts)
			if err != nil || r.URL.Path != "/am/api/v2/alerts" || r.Method != http.MethodPost || len(alerts) != 1 || alerts[0].Labels["drill"] != "true" {
				w.WriteHeader(http.StatusBadRequest)
			}
		}, ""},
		"refused": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte("bad label\x1b[2J\n" + strings.Repeat("x", 1<<20)))
		}, `400 Bad Request: bad label\x1b[2J\nxxx`},
		"not found":  {http.NotFound, "404 Not Found: 404 page not found"},
		"redirected": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, "302"},
	} {
		server := httptest.NewServer(tt.answer)
		err := Post(t.Context(), server.URL+"/am/", newAlert(t, Options{Start: time.Now()}))
		server.Close()
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || len(err.Error()) > 400 || strings.HasSuffix(err.Error(), `\n`)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if len(got) > 0 {
		t.Errorf("redirected to %q", got)
	}
	for _, bad := range []string{"", "host:9093", "ftp://host", "http://", "http://u:SECRET@", "http://x?y"} {
		if err := ValidateURL(bad); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestAlertmanager: a real Alertmanager, where one is installed, takes the alert and notifies
// of it and of its end.
func TestAlertmanager(t *testing.T) {
	binary, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		binary, err = exec.LookPath("alertmanager")
	}
	if err != nil {
		t.Skip("no Alertmanager is installed")
	}
	messages := make(chan string, 16)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			Status string
			Alerts []Alert
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		for _, a := range body.Alerts {
			messages <- body.Status + " " + a.Annotations["summary"]
		}
	}))
	defer hook.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "alertmanager.yml")
	must.Do(t, os.WriteFile(config, []byte("route: {receiver: hook, group_wait: 0s, group_interval: 1s}\n"+
		"receivers: [{name: hook, webhook_configs: [{url: '"+hook.URL+"'}]}]\n"), 0o600))
	address := must.FreeAddress(t)
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, "--config.file="+config, "--storage.path="+dir,
		"--web.listen-address="+address, "--cluster.listen-address=")
	cmd.Stderr = &log
	must.Do(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	alert := newAlert(t, Options{Node: "node-1", Start: time.Now(), For: time.Hour})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := Post(t.Context(), "http://"+address, alert)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not accepted: %v\n%s", err, log.String())
		}
	}
	for _, status := range []string{"firing", "resolved"} {
		select {
		case got := <-messages:
			check.Equal(t, got, status+" "+alert.Annotations["summary"], "received")
		case <-time.After(time.Minute):
			t.Fatalf("no message that it is %s", status)
		}
		alert.EndsAt = time.Now()
		must.Do(t, Post(t.Context(), "http://"+address, alert))
	}
}
