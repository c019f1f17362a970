package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

// leak is a pod's name that stands in every text of a snapshot.
const leak = "leaking-pod-7d9f8b6c5-x2x4v"

// ownWords are the fields that only hold words of plegd, of the kernel or of the
// CRI, and names of processes: no runtime and no pod has a say in them.
var ownWords = []string{
	"State", "Reason", "RunnerUp", "Symptom", "ID", "Severity", "Name", "Operation", "Code", "Phase", "Stage", "Cause", "Mode", "Kind",
	"PlegdVersion", "Node", "Comm", "HolderComm", "Channel", "Syscall", "WaitChannels", "From", "Source", "Path", "Socket",
	"Version", "CRIVersion", "Use", "Type", "Option",
}

// fill sets every string in v, makes one entry in each list and map, and points
// every pointer at something filled.
func fill(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(viewtest.Ago(time.Minute)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), field)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), field)
	case reflect.Map:
		one := reflect.New(v.Type().Elem()).Elem()
		fill(one, field)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), one)
	case reflect.String:
		if !slices.Contains(ownWords, field) {
			v.SetString("about " + leak + ", or so")
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	}
}

// leaking is a snapshot with the name in every text, and with the pod as such.
func leaking(t *testing.T) health.Snapshot {
	t.Helper()
	var s health.Snapshot
	fill(reflect.ValueOf(&s).Elem(), "")
	s.SchemaVersion, s.At, s.State = health.SchemaVersion, viewtest.T0, health.StateDegraded
	pod := health.PodInspection{
		UID: leak, Namespace: leak, Name: leak, Operation: "container_status", Start: viewtest.Ago(time.Minute),
		Err: &health.CallError{Operation: "container_status", Code: "Unknown", Message: "no container of " + leak + "_x"},
	}
	r := &s.Facts.Relist
	r.Inspecting, r.Failing, r.Slowest, r.Last.Slowest = []health.PodInspection{pod}, []health.PodInspection{pod}, []health.PodInspection{pod}, []health.PodInspection{pod}
	s.Chain = nil
	for _, kind := range []health.LinkKind{health.KindCall, health.KindContainer, health.KindPod, health.KindMount, health.KindDevice, health.KindCgroup} {
		link := health.Link{Kind: kind, State: health.LinkBlocked, Evidence: "of " + leak}
		if kind != health.KindCall {
			link.Name = "/var/" + leak + "/x"
		}
		s.Chain = append(s.Chain, link)
	}
	s.Culprit = &s.Chain[len(s.Chain)-1]
	s.Facts.Evidence.Chain.Links = s.Chain
	c := s.Facts.Evidence.Children
	c.Stuck[0].Sandbox, c.Old[0].Sandbox = leak, leak
	return s
}

type leakingIncidents struct{ one *incident.Incident }

func (l leakingIncidents) Get(context.Context, string) (*incident.Incident, error) { return l.one, nil }

// TestNoNameLeaks puts a pod's name into every text of a snapshot and looks for it
// in every answer over TCP without authentication. A new field of a snapshot that
// may hold a name fails here until health.Names.Redact leaves the name out.
func TestNoNameLeaks(t *testing.T) {
	s := leaking(t)
	moment := s
	one := viewtest.Incident()
	one.KubeletMessage = "about " + leak
	one.Relists[0].Slowest = s.Facts.Relist.Slowest
	one.Timeline = []incident.Moment{{Snapshot: &moment}}
	opts := HandlerOptions{Incidents: leakingIncidents{one}}
	page := view.PathIncidentPages + "/" + viewtest.IncidentID
	paths := []string{
		view.PathStatus, "/", view.PathHealthz, view.PathIncidents, view.PathIncidents + "/" + viewtest.IncidentID, page, view.PathHistory,
	}
	for _, names := range []bool{true, false} {
		if names {
			opts.Names = NamesAlways
		} else {
			opts.Names = nil
		}
		h := newHandler(viewtest.NewSource(s), prometheus.ToTransactionalGatherer(prometheus.NewRegistry()), opts, viewtest.Clock)
		for _, path := range paths {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			text := w.Body.String()
			n := strings.Count(text, leak)
			if !names && n > 0 {
				at := strings.Index(text, leak)
				t.Errorf("%s names the pod %d times, first in:\n...%s...", path, n, text[max(0, at-200):min(len(text), at+100)])
			}
			if !names && strings.Contains(text, "a pod (names") {
				t.Errorf("%s holds a row for a pod without a name", path)
			}
			if names && n == 0 && path != view.PathIncidents && path != view.PathHistory {
				t.Errorf("%s does not hold the name where it may: it proves nothing", path)
			}
		}
	}
}
