//go:build e2e

package kubernetes

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/kubelet/record"
	"github.com/plegd/plegd/test/lab"
)

// Conditions is a node's Ready condition in the API, as it arrives at a watcher.
type Conditions struct {
	mu     sync.Mutex
	writes []record.Write
}

// WatchReady follows a node until the test ends, and removes it from the API then.
func (c *ControlPlane) WatchReady(t testing.TB, node string) *Conditions {
	out := &Conditions{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			// The API server ends a watch now and then.
			body, err := c.open(http.MethodGet, "/api/v1/nodes?watch=1&fieldSelector=metadata.name="+node)
			if err != nil {
				time.Sleep(lab.PollInterval)
				continue
			}
			stop := context.AfterFunc(ctx, func() { lab.Close(body) })
			for decoder := json.NewDecoder(body); ; {
				var event struct {
					Object struct {
						Status struct {
							Conditions []struct{ Type, Status, Message string } `json:"conditions"`
						} `json:"status"`
					} `json:"object"`
				}
				if decoder.Decode(&event) != nil {
					break
				}
				for _, c := range event.Object.Status.Conditions {
					if c.Type == "Ready" {
						out.add(record.Write{At: time.Now(), Ready: c.Status == "True", Message: c.Message})
					}
				}
			}
			stop()
			lab.Close(body)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_, _ = c.Request(http.MethodDelete, "/api/v1/nodes/"+node)
	})
	return out
}

func (s *Conditions) add(w record.Write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, w)
}

// Since returns the writes from a moment on.
func (s *Conditions) Since(t time.Time) []record.Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.writes), func(w record.Write) bool { return w.At.Before(t) })
}

// Last returns the newest write.
func (s *Conditions) Last() (last record.Write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.writes); n > 0 {
		last = s.writes[n-1]
	}
	return last
}
