package health

import (
	"cmp"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
)

// apiLoss is a reason why the kubelet renews no lease although it runs.
type apiLoss struct {
	first    time.Time // the first moment at which no request of the kubelet is answered
	answered time.Time // the last moment at which one was, zero if unknown
	starting bool      // the kubelet has sent none since it started
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
		out = append(out, apiLoss{
			first: api.LostSince, answered: api.AckedAt, evidence: connectionText(api),
			starting: api.AckedAt.Before(process.Started.Add(kubeletStarts)),
		})
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
	case api.Connections > 0 && api.UnackedBytes == 0:
		return "no request goes over a connection to its API server " + api.Server + " that lasts"
	case api.Connections > 0:
		return "its API server " + api.Server + " does not answer: " + facts.Count(int(api.UnackedBytes), "byte", "bytes") +
			" unacknowledged, " + facts.Count(api.Retransmits, "retransmission", "retransmissions")
	case api.Connecting > 0:
		return "its API server " + api.Server + " does not accept its connection"
	}
	return "it has no connection to its API server " + api.Server
}

// lasts reports whether a loss has lasted for long enough to be named.
func (l *apiLoss) lasts(s *signals) bool {
	silent := s.unanswered(l.answered, apiSilentAfter) && s.unanswered(l.first, apiSettle)
	return silent || s.unanswered(l.first, apiLostAfter)
}

// start returns the begin of a loss, the last answer where that is known.
func (l *apiLoss) start() time.Time { return cmp.Or(l.answered, l.first) }

func kubeletDisconnected(s *signals) (out lines) {
	for _, loss := range apiLosses(s.f, s.moment) {
		waits := loss.starting && s.status != statusOK // for its first Status, before it sends more
		out.addIf(loss.lasts(s) && !waits, "%s, for %s", loss.evidence, s.ago(loss.start()))
	}
	return out
}

// apiLost returns the first of the reasons why the kubelet renews no lease; zero for none.
func (s *signals) apiLost() kubelet.APILoss {
	var first kubelet.APILoss
	for _, loss := range apiLosses(s.f, s.moment) {
		if first.First.IsZero() || loss.first.Before(first.First) {
			first = kubelet.APILoss{First: loss.first, LastOK: loss.answered}
		}
	}
	return first
}

// nodePaused reports a pause that was long enough for the node controller, for as long as the API may show Unknown.
func nodePaused(s *signals) lines {
	if !s.moment.Before(kubelet.UnknownUntil(s.f)) {
		return nil
	}
	return line("plegd, or the node, was paused for %s until %s ago: the kubelet may have renewed no lease meanwhile",
		facts.Seconds(s.f.Paused), s.ago(s.f.Woke))
}
