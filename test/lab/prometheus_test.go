//go:build e2e

package lab

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestPrometheus shows that an alert fires, resolves and is in the record.
func TestPrometheus(t *testing.T) {
	var value atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "lab_value %d\n", value.Load())
	}))
	defer target.Close()
	p := NewPrometheus(t, strings.TrimPrefix(target.URL, "http://"), `groups:
  - name: lab
    rules:
      - alert: LabValue
        expr: lab_value > 0
`)
	start := time.Now()
	await := func(want bool) {
		t.Helper()
		Eventually(t, 5*time.Second, fmt.Sprintf("the alert fires: %t", want), func() error {
			firing, err := p.Firing("LabValue")
			if err == nil && firing != want {
				err = errors.New("it does not")
			}
			return err
		})
	}
	await(false)
	value.Store(1)
	await(true)
	value.Store(0)
	await(false)
	samples, err := p.Range(`ALERTS{alertname="LabValue",alertstate="firing"}`, start)
	if err != nil || len(samples) == 0 || samples[0].Value != 1 || samples[0].At.Before(start) {
		t.Errorf("the record of the alert is %v %v", samples, err)
	}
}
