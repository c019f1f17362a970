//go:build e2e

package kubelet

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The settings of the node controller: its defaults.
const (
	nodeMonitorPeriod = 5 * time.Second
	nodeMonitorGrace  = 50 * time.Second
)

// apiAddress is where the API server of a node listens, inside the node.
const apiAddress = "127.0.0.1:8080"

// readyWrite is one write of the node's Ready condition.
type readyWrite struct {
	At      time.Time `json:"at"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

// apiServer is as much of an API server as one kubelet needs: it keeps one node
// and its leases, accepts every token, answers every list with nothing, and
// records each write of the node's Ready condition.
type apiServer struct {
	mu       sync.Mutex
	version  int
	node     map[string]any
	stored   map[string]map[string]any // leases and CSINodes, by path
	watchers map[chan []byte]struct{}
	writes   []readyWrite
	changed  chan struct{} // closed and replaced with every write
	renewed  bool          // the node's lease, since the node controller last looked
}

// newAPIServer serves on a listener until the test ends.
func newAPIServer(t testing.TB, l net.Listener) *apiServer {
	s := &apiServer{
		version: 100, stored: map[string]map[string]any{}, watchers: map[chan []byte]struct{}{}, changed: make(chan struct{}),
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	stop := make(chan struct{})
	var parts sync.WaitGroup
	parts.Go(func() { _ = server.Serve(l) }) // it ends with Close below
	parts.Go(func() { s.monitor(stop) })
	t.Cleanup(func() {
		close(stop)
		_ = server.Close()
		parts.Wait()
	})
	return s
}

// monitor is the node controller
// (pkg/controller/nodelifecycle/node_lifecycle_controller.go, tryUpdateNodeHealth):
// it sets Ready to Unknown when it has seen no renewed lease for long enough.
func (s *apiServer) monitor(stop <-chan struct{}) {
	tick := time.NewTicker(nodeMonitorPeriod)
	defer tick.Stop()
	seen := time.Now()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		if s.renewed {
			s.renewed, seen = false, time.Now()
		}
		if s.node != nil && time.Since(seen) > nodeMonitorGrace {
			s.setUnknown()
		}
		s.mu.Unlock()
	}
}

// setUnknown sets Ready to Unknown; the caller holds the lock.
func (s *apiServer) setUnknown() {
	ready := s.ready()
	if ready == nil || ready["status"] == "Unknown" {
		return
	}
	ready["status"], ready["reason"], ready["message"] = "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."
	s.update("MODIFIED")
}

// ready is the node's Ready condition, nil while it has none; the caller holds the lock.
func (s *apiServer) ready() map[string]any {
	status, _ := s.node["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	i := indexOf(conditions, "type", "Ready")
	if i < 0 {
		return nil
	}
	ready, _ := conditions[i].(map[string]any)
	return ready
}

// Writes returns the writes of the Ready condition so far, and a channel that is
// closed with the next one.
func (s *apiServer) Writes() ([]readyWrite, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]readyWrite(nil), s.writes...), s.changed
}

// record notes the node's Ready condition; the caller holds the lock.
func (s *apiServer) record() {
	ready := s.ready()
	if ready == nil {
		return
	}
	text := func(key string) string { v, _ := ready[key].(string); return v }
	s.writes = append(s.writes, readyWrite{At: time.Now(), Status: text("status"), Reason: text("reason"), Message: text("message")})
	close(s.changed)
	s.changed = make(chan struct{})
}

// collections are the resources that a kubelet lists and watches: they exist, and
// but for the node they are empty.
var collections = map[string]string{
	"nodes": "Node", "pods": "Pod", "services": "Service", "runtimeclasses": "RuntimeClass", "csidrivers": "CSIDriver",
	"csinodes": "CSINode", "configmaps": "ConfigMap", "secrets": "Secret", "leases": "Lease",
	"clustertrustbundles": "ClusterTrustBundle", "resourceclaims": "ResourceClaim", "podcertificaterequests": "PodCertificateRequest",
}

// ServeHTTP answers one request of the kubelet.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/version" {
		reply(w, http.StatusOK, map[string]string{"major": "1", "minor": "36", "gitVersion": "v1.36.2"})
		return
	}
	group, path, ok := splitPath(r.URL.Path)
	if !ok {
		fail(w, http.StatusNotFound, "NotFound")
		return
	}
	var body map[string]any
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil && err != io.EOF {
			fail(w, http.StatusBadRequest, "BadRequest")
			return
		}
	}
	switch kind := collections[path[0]]; {
	case path[0] == "tokenreviews":
		body["status"] = map[string]any{"authenticated": true, "user": map[string]any{"username": "plegd"}}
		reply(w, http.StatusCreated, body)
	case path[0] == "subjectaccessreviews":
		body["status"] = map[string]any{"allowed": true}
		reply(w, http.StatusCreated, body)
	case kind == "" && r.Method == http.MethodPost:
		reply(w, http.StatusCreated, body) // an event
	case kind == "":
		fail(w, http.StatusNotFound, "NotFound")
	case kind == "Node" && len(path) > 1 || kind == "Node" && r.Method == http.MethodPost:
		s.serveNode(w, r.Method, body)
	case kind == "Lease" || kind == "CSINode" && (len(path) > 1 || r.Method == http.MethodPost):
		s.serveStored(w, r, body)
	case r.Method == http.MethodGet && len(path) == 1:
		s.serveList(w, r, group, kind)
	case r.Method == http.MethodPost:
		// A mirror pod.
		metadata, _ := body["metadata"].(map[string]any)
		metadata["uid"], metadata["resourceVersion"] = fmt.Sprintf("mirror-%v", metadata["name"]), "1"
		reply(w, http.StatusCreated, body)
	default:
		fail(w, http.StatusNotFound, "NotFound")
	}
}

// splitPath returns the API group with its version and the path below it without
// the namespace.
func splitPath(path string) (group string, rest []string, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		group, rest = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, rest = parts[1]+"/"+parts[2], parts[3:]
	default:
		return "", nil, false
	}
	if len(rest) > 2 && rest[0] == "namespaces" {
		rest = rest[2:]
	}
	return group, rest, true
}

func (s *apiServer) serveNode(w http.ResponseWriter, method string, body map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case method == http.MethodPost && s.node != nil:
		fail(w, http.StatusConflict, "AlreadyExists")
		return
	case method == http.MethodPost:
		s.node = body
		metadata, _ := s.node["metadata"].(map[string]any)
		metadata["uid"], metadata["creationTimestamp"] = "node", time.Now().UTC().Format(time.RFC3339)
		s.update("ADDED")
		reply(w, http.StatusCreated, s.node)
		return
	case s.node == nil:
		fail(w, http.StatusNotFound, "NotFound")
		return
	case method == http.MethodPatch:
		s.node = mergePatch(s.node, body)
		s.update("MODIFIED")
	case method == http.MethodPut:
		s.node = body
		s.update("MODIFIED")
	}
	reply(w, http.StatusOK, s.node)
}

// update gives the changed node a version, records its condition and informs the
// watchers; the caller holds the lock.
func (s *apiServer) update(event string) {
	s.version++
	metadata, _ := s.node["metadata"].(map[string]any)
	metadata["resourceVersion"] = strconv.Itoa(s.version)
	s.node["kind"], s.node["apiVersion"] = "Node", "v1"
	s.record()
	line := s.event(event)
	for watcher := range s.watchers {
		select {
		case watcher <- line:
		default: // it does not read; it will list again
		}
	}
}

func (s *apiServer) event(kind string) []byte {
	line, err := json.Marshal(map[string]any{"type": kind, "object": s.node})
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return append(line, '\n')
}

func (s *apiServer) serveStored(w http.ResponseWriter, r *http.Request, body map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.URL.Path
	if r.Method == http.MethodGet {
		if object := s.stored[name]; object != nil {
			reply(w, http.StatusOK, object)
		} else {
			fail(w, http.StatusNotFound, "NotFound")
		}
		return
	}
	if r.Method == http.MethodPatch {
		body = mergePatch(s.stored[name], body)
	}
	s.renewed = s.renewed || strings.Contains(name, "/leases")
	metadata, _ := body["metadata"].(map[string]any)
	s.version++
	metadata["resourceVersion"], metadata["uid"] = strconv.Itoa(s.version), "stored"
	code := http.StatusOK
	if r.Method == http.MethodPost {
		name, code = fmt.Sprintf("%s/%v", name, metadata["name"]), http.StatusCreated
	}
	s.stored[name] = body
	reply(w, code, body)
}

func (s *apiServer) serveList(w http.ResponseWriter, r *http.Request, group, kind string) {
	query := r.URL.Query()
	if watch := query.Get("watch"); watch != "" && watch != "0" && watch != "false" {
		s.serveWatch(w, r, group, kind)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	if kind == "Node" && s.node != nil {
		items = append(items, s.node)
	}
	reply(w, http.StatusOK, map[string]any{
		"kind": kind + "List", "apiVersion": group, "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)},
	})
}

func (s *apiServer) serveWatch(w http.ResponseWriter, r *http.Request, group, kind string) {
	watcher := make(chan []byte, 100)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	s.mu.Lock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		if kind == "Node" && s.node != nil {
			_, _ = w.Write(s.event("ADDED"))
		}
		_, _ = fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", kind, group, s.version)
	}
	if kind == "Node" {
		s.watchers[watcher] = struct{}{}
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, watcher)
	}()
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for {
		select {
		case line := <-watcher:
			_, _ = w.Write(line)
			_ = flush()
		case <-r.Context().Done():
			return
		}
	}
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, code int, reason string) {
	reply(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
}
