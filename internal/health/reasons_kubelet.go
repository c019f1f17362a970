package health

import (
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// apiLostAfter is how long the kubelet's requests must have had no answer: a kubelet whose API
// server restarts connects again within it.
const apiLostAfter = 10 * time.Second

// apiLoss is a reason why the kubelet renews no lease although it runs.
type apiLoss struct {
	first    time.Time // the first moment at which no request of the kubelet is answered
	answered time.Time // the last moment at which one was, zero if unknown
	evidence string
}

// apiLosses returns why the kubelet's requests to its API server fail, at the moment t.
func apiLosses(f *facts.Facts, t time.Time) []apiLoss {
	process := f.Evidence.KubeletProcess
	api := f.Evidence.KubeletAPI
	if process == nil || process.Standalone {
		return nil
	}
	var out []apiLoss
	if api != nil && !api.LostSince.IsZero() {
		out = append(out, apiLoss{first: api.LostSince, answered: api.AckedAt, evidence: connectionText(api)})
	}
	if api != nil && !api.CertificateNotAfter.IsZero() && t.After(api.CertificateNotAfter) {
		expired := api.CertificateNotAfter
		out = append(out, apiLoss{first: expired, answered: expired, evidence: "its client certificate has expired"})
	}
	if k := f.Evidence.Kubelet; k != nil && k.API.Refused != "" {
		out = append(out, apiLoss{
			first: k.API.RefusedSince, answered: k.API.OKAt, evidence: "its requests to the API server end with " + k.API.Refused,
		})
	}
	return out
}

// connectionText describes a kubelet without a connection that works.
func connectionText(api *facts.KubeletAPI) string {
	switch {
	case api.Connections > 0:
		return "its API server " + api.Server + " does not answer: " + facts.Count(int(api.UnackedBytes), "byte", "bytes") +
			" unacknowledged, " + facts.Count(api.Retransmits, "retransmission", "retransmissions")
	case api.Connecting > 0:
		return "its API server " + api.Server + " does not accept its connection"
	}
	return "it has no connection to its API server " + api.Server
}

func kubeletDisconnected(w *view) (out lines) {
	for _, loss := range apiLosses(w.f, w.now) {
		out.when(w.unanswered(loss.first, apiLostAfter), "%s, for %s", loss.evidence, w.ago(loss.first))
	}
	return out
}
