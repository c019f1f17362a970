package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/test/viewtest"
)

// TestURL asks a daemon over HTTP that knows the client, and one that does not.
func TestURL(t *testing.T) {
	var answer any
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := facts.Marshal(answer)
		if err != nil || r.URL.Path != view.PathStatus {
			http.Error(w, "no such page", http.StatusNotFound)
			return
		}
		_, _ = w.Write(b)
	}))
	defer daemon.Close()
	s := viewtest.Unhealthy()
	for _, tt := range []struct {
		answer any
		args   []string
		code   int
		want   string
	}{
		{&s, []string{"status"}, exitUnhealthy, "First step"},
		{&s, []string{"status", "--full"}, exitUnhealthy, "Fresh dial"},
		{view.NewPublic(&s), []string{"status"}, exitUnhealthy, "public summary"},
		{view.NewPublic(&s), []string{"status", "-o", "json"}, exitUnhealthy, `"public": true`},
		{view.NewPublic(&s), []string{"check"}, exitUnhealthy, "RuntimeUnresponsive"},
		{view.NewPublic(&s), []string{"check", "-o", "nagios"}, exitUnhealthy, "PLEGD CRITICAL - unhealthy: RuntimeUnresponsive"},
	} {
		answer = tt.answer
		code, stdout, stderr := plegd(t, append(tt.args, "--url", daemon.URL)...)
		if code != tt.code || !strings.Contains(stdout, tt.want) {
			t.Errorf("%v: %d\n%s%s", tt.args, code, stdout, stderr)
		}
	}
	for _, args := range [][]string{{"status", "--url", "node"}, {"status", "--user=a:b"}, {"check", "--url=http://x", "--cert=y"}} {
		if code, _, stderr := plegd(t, args...); code != exitUsage {
			t.Errorf("%v: %d %s", args, code, stderr)
		}
	}
}
