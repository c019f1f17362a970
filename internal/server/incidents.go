package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/view"
)

const (
	// maxReaders is how many answers of one incident with its story are made at
	// once; further ones wait for turnWithin.
	maxReaders = 4
	turnWithin = 2 * time.Second
)

// incidents answers with the heads of the incidents, newest first: an array.
func (h *handler) incidents(w http.ResponseWriter, _ *http.Request) {
	list := h.src.Incidents()
	if list == nil {
		list = []incident.Summary{}
	}
	writeJSON(w, list)
}

// incident answers with one incident: without names where they may not be shown.
func (h *handler) incident(w http.ResponseWriter, r *http.Request) {
	h.withIncident(w, r, r.PathValue("id"), func(one *incident.Incident, _ bool) { writeJSON(w, one) })
}

// incidentPage answers with the page of an incident.
func (h *handler) incidentPage(w http.ResponseWriter, r *http.Request) {
	h.withIncident(w, r, r.PathValue("id"), func(one *incident.Incident, names bool) {
		h.page.ServeIncident(w, r, one, h.snapshot(r), names)
	})
}

// withIncident calls answer with an incident, which names no pod where names is
// false, or answers why there is none.
func (h *handler) withIncident(w http.ResponseWriter, r *http.Request, id string, answer func(one *incident.Incident, names bool)) {
	var one *incident.Incident
	// One may be megabytes, while it is written out: to readers who take their
	// time, too, and so the turn is over with the answer.
	wait := time.NewTimer(turnWithin)
	defer wait.Stop()
	select {
	case h.turns <- struct{}{}:
		defer func() { <-h.turns }()
	case <-wait.C:
		w.Header().Set("Retry-After", "1")
		writeText(w, http.StatusServiceUnavailable, func(w io.Writer) {
			fmt.Fprintf(w, "%d others are reading incidents; ask again\n", maxReaders)
		})
		return
	case <-r.Context().Done():
		return
	}
	err := incident.ErrUnknown
	if h.opts.Incidents != nil {
		one, err = h.opts.Incidents.Get(r.Context(), id)
	}
	switch {
	case errors.Is(err, incident.ErrUnknown):
		writeText(w, http.StatusNotFound, func(w io.Writer) {
			fmt.Fprintf(w, "no incident has the id %s; %s lists them\n", plain.Text(id), view.PathIncidents)
		})
	case err != nil:
		writeText(w, http.StatusServiceUnavailable, func(w io.Writer) { fmt.Fprintln(w, plain.Text(err.Error())) })
	case h.opts.Names(r):
		answer(one, true)
	default:
		answer(one.WithoutNames(), false)
	}
}
