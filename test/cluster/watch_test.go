//go:build e2e

package cluster

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/plegd/plegd/test/kubelet/record"
)

// node is as much of a Node as the tests look at.
type node struct {
	Spec struct {
		Taints []struct {
			Key string `json:"key"`
		} `json:"taints"`
	} `json:"spec"`
	Status struct {
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// ready returns the condition Ready.
func (n *node) ready() condition {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c
		}
	}
	return condition{}
}

const nodePath = "/api/v1/nodes/" + nodeName

func (c *cluster) getNode() (*node, error) {
	b, err := c.request(http.MethodGet, nodePath)
	if err != nil {
		return nil, err
	}
	var n node
	return &n, json.Unmarshal(b, &n)
}

// conditions follows the node's Ready condition in the API, as it arrives at
// somebody who watches.
type conditions struct {
	mu     sync.Mutex
	writes []record.Write
	last   node
}

// watchNode follows until the test ends.
func (c *cluster) watchNode() *conditions {
	out := &conditions{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c.t.Context().Err() == nil {
			// The API server ends a watch now and then.
			body, err := c.open(http.MethodGet, "/api/v1/nodes?watch=1&fieldSelector=metadata.name="+nodeName)
			if err != nil {
				continue
			}
			for decoder := json.NewDecoder(body); ; {
				var event struct {
					Object node `json:"object"`
				}
				if decoder.Decode(&event) != nil {
					break
				}
				out.add(&event.Object, time.Now())
			}
			_ = body.Close()
		}
	}()
	c.t.Cleanup(func() { <-done })
	return out
}

func (s *conditions) add(n *node, at time.Time) {
	ready := n.ready()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = *n
	s.writes = append(s.writes, record.Write{At: at, Ready: ready.Status == "True", Message: ready.Message})
}

// since returns the writes from a moment on, and the newest state.
func (s *conditions) since(t time.Time) (writes []record.Write, last node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writes {
		if !w.At.Before(t) {
			writes = append(writes, w)
		}
	}
	return writes, s.last
}

// isReady reports whether the node is Ready by the newest state.
func (s *conditions) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.ready().Status == "True"
}
