package exporter

import (
	"encoding/xml"
	"errors"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// pageText returns the page of d with its entities resolved.
func pageText(t *testing.T, d *StatusDocument) string {
	t.Helper()
	return html.UnescapeString(pageSource(t, d))
}

func pageSource(t *testing.T, d *StatusDocument) string {
	t.Helper()
	w := httptest.NewRecorder()
	newPage().serve(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody), d)
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// elements returns how often each element opens in the page, and fails when
// they do not close in order.
func elements(t *testing.T, source string) map[string]int {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(source))
	dec.Strict, dec.AutoClose, dec.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	out := make(map[string]int)
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("the page is not well formed: %v\n%s", err, source)
		}
		if e, ok := token.(xml.StartElement); ok {
			out[e.Name.Local]++
		}
	}
}

func TestPage(t *testing.T) {
	for name, tt := range map[string]struct {
		snap Snapshot
		want []string
	}{
		"starting":  {starting(), []string{"starting: Starting", "no socket found"}},
		"healthy":   {healthy(), []string{"<h1>healthy</h1>", "for 2d01h", "would call this node Ready", "110 running", "containerd 1.7.24"}},
		"degraded":  {degraded(), []string{"41s until the kubelet reports NotReady", "Also active", "Stuck pods", "batch/nightly-report-28872000-k4j2p", "2 of 3 pods inspected"}},
		"unhealthy": {unhealthy(), []string{"NotReady: [container runtime is down", "under way for 1m11s", "kill -USR1"}},
	} {
		t.Run(name, func(t *testing.T) {
			source := pageSource(t, document(tt.snap, true))
			text := html.UnescapeString(source)
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in:\n%s", want, text)
				}
			}
			for _, path := range []string{PathMetrics, PathStatus, PathHealthz, PathHealthy, PathReady} {
				if !strings.Contains(source, `href="`+path+`"`) {
					t.Errorf("no link to %s", path)
				}
			}
			got := elements(t, source)
			if got["script"] > 0 || got["img"] > 0 || got["link"] > 0 || strings.Contains(source, " style=") {
				t.Error("the page wants more than its content policy allows")
			}
			if got["style"] != 1 || !strings.Contains(source, "<style>"+pageCSS+"</style>") {
				t.Error("the style sheet is not in the page as its hash was made")
			}
			if strings.Contains(source, "ZgotmplZ") {
				t.Error("the template put something where it does not belong")
			}
		})
	}
}

func TestPageHostile(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)>` + "\x1b[2J\u202e"
	d := document(degraded(), true)
	want := elements(t, pageSource(t, d))
	d.KubeletMessage, d.NodeReady = evil, false
	d.Next, d.Reason, d.RunnerUp, d.State, d.PlegdVersion = evil, evil, evil, evil, evil
	for i := range d.Reasons {
		d.Reasons[i].Evidence = []string{evil, evil}
	}
	d.Reasons[0].ID, d.Reasons[0].Severity = evil, evil
	d.Runtime.Name, d.Endpoint.Path = evil, evil
	d.Operations["list_containers"] = OperationDocument{LastError: &ErrorDocument{Operation: evil, Code: evil, Message: evil}}
	for _, pods := range [][]PodInspectionDocument{d.Pods.Slowest, d.Pods.Stuck, d.Pods.Failing} {
		for i := range pods {
			pods[i].Pod, pods[i].Operation = &PodDocument{Namespace: evil, Name: evil, UID: evil}, evil
			pods[i].Error = &ErrorDocument{Operation: evil, Code: evil, Message: evil}
		}
	}
	source := pageSource(t, d)
	got := elements(t, source)
	if got["script"] > 0 || got["img"] > 0 {
		t.Errorf("a name became markup:\n%s", source)
	}
	if strings.ContainsAny(source, "\x1b\u202e") {
		t.Error("control characters are in the page")
	}
	if got["section"] != want["section"] || got["table"] != want["table"] {
		t.Errorf("the page fell apart: %v, want %v", got, want)
	}
}
