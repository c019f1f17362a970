package exporter

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/plegd/plegd/internal/incident"
)

// incidents answers with the heads of the incidents, newest first: an array.
func (h *handler) incidents(w http.ResponseWriter, _ *http.Request) {
	list := h.src.Snapshot(h.now()).Incidents
	if list == nil {
		list = []incident.Summary{}
	}
	writeJSON(w, list)
}

// incident answers with one incident: without names where they may not be shown.
func (h *handler) incident(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	var one *incident.Incident
	err := incident.ErrUnknown
	if h.opts.Incidents != nil {
		one, err = h.opts.Incidents.Get(r.Context(), id)
	}
	switch {
	case errors.Is(err, incident.ErrUnknown):
		text(w, http.StatusNotFound, func(w io.Writer) {
			fmt.Fprintf(w, "no incident has the id %s; %s lists them\n", printable(id), PathIncidents)
		})
	case err != nil:
		text(w, http.StatusServiceUnavailable, func(w io.Writer) { fmt.Fprintln(w, printable(err.Error())) })
	case h.opts.Names(r):
		writeJSON(w, one)
	default:
		writeJSON(w, withoutNames(one))
	}
}
