package health

import (
	"time"

	"github.com/plegd/plegd/internal/facts/factstest"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// healthyFacts are those of a node on which all was well a moment before.
var healthyFacts = factstest.Healthy
