package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

// heldIncidents answers when it is let go.
type heldIncidents struct{ gate chan struct{} }

func (h heldIncidents) Get(ctx context.Context, id string) (*incident.Incident, error) {
	select {
	case <-h.gate:
		return nil, incident.ErrUnknown
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestIncidentTurns: however many ask for an incident, a few answers are made at
// once; who gives up waits no longer.
func TestIncidentTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := heldIncidents{gate: make(chan struct{})}
		h := newHandler(viewtest.NewSource(viewtest.Starting()), prometheus.ToTransactionalGatherer(prometheus.NewRegistry()), HandlerOptions{Incidents: held, Access: FullAccess}, viewtest.Clock)
		ask := func(ctx context.Context) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, view.PathIncidents+"/20261121T030405Z-00000a", nil))
			return w
		}
		codes := make(chan int, maxReaders)
		for range maxReaders {
			go func() { codes <- ask(t.Context()).Code }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if ask(ctx); time.Since(began) != time.Second {
			t.Errorf("a client that gives up after 1 s is released after %s", time.Since(began))
		}
		close(held.gate)
		for range maxReaders {
			if code := <-codes; code != http.StatusNotFound {
				t.Errorf("%d", code)
			}
		}
		if w := ask(t.Context()); w.Code != http.StatusNotFound {
			t.Errorf("afterwards: %d", w.Code)
		}
	})
}
