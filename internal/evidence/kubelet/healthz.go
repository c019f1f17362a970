package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

// followProcess samples a kubelet whose healthz is turned off, by its process alone.
func (k *Client) followProcess(process *facts.KubeletProcess, known bool, out *facts.Kubelet) error {
	switch {
	case process != nil:
		k.opts.Seen = true
		k.answeredAt = out.At
		return nil
	case !known:
		return errors.New("its healthz is turned off (healthzPort 0), and the search for its process failed")
	}
	out.OK = false
	out.Refused = true
	out.Detail = "its process has ended; its healthz is turned off (healthzPort 0)"
	return nil
}

// sampleHealthz samples a kubelet by its healthz. The error says why its state is unknown.
func (k *Client) sampleHealthz(ctx context.Context, process *facts.KubeletProcess, known bool, out *facts.Kubelet) error {
	err := k.readHealthz(ctx, out)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNeverAnswered) && process == nil && known:
		return ErrNone
	case errors.Is(err, errNeverAnswered) && k.isStartOverdue(process):
		out.OK = false
		out.Detail = "connection refused: it has not begun to listen"
		return nil
	}
	return fmt.Errorf("asking %s: %w", k.opts.HealthzURL, err)
}

// startTimeout is the time within which a kubelet that is not held up listens; measured 1.4 to 6 s.
const startTimeout = 30 * time.Second

// isStartOverdue reports whether a kubelet should listen at the default address by now.
func (k *Client) isStartOverdue(process *facts.KubeletProcess) bool {
	isDefault := k.opts.HealthzURL == DefaultHealthz && process != nil && process.HealthzPort == nil
	return isDefault && time.Since(process.Started) > startTimeout
}

// readHealthz requests healthz. The error says why the kubelet's state is unknown.
func (k *Client) readHealthz(ctx context.Context, out *facts.Kubelet) error {
	resp, err := k.healthz.get(ctx)
	if err != nil {
		out.Refused = errors.Is(err, syscall.ECONNREFUSED)
		silent, why := k.explain(err)
		switch {
		case out.Refused && !k.opts.Seen:
			return errNeverAnswered
		case !silent || !k.opts.Seen:
			return why
		}
		out.OK = false
		out.Detail = why.Error()
		return nil
	}
	defer resp.Body.Close()
	// The beginning of a slow or incomplete body is good enough.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxHealthz))
	if err := statusError(resp); err != nil {
		if resp.StatusCode < http.StatusInternalServerError {
			return err
		}
		out.OK = false
		out.Detail = failingChecks(resp.Status, string(body))
	}
	k.opts.Seen = true
	k.answeredAt = out.At
	return nil
}

// maxHealthz bounds an answer of healthz, in bytes.
const maxHealthz = 16 << 10

var errNeverAnswered = errors.New("connection refused, and it has never answered: " +
	"start the kubelet, or say in --kubelet-healthz-url where its healthz is")

var failingCheck = regexp.MustCompile(`(?m)^\s*\[-\](.*?)(: reason withheld)?\s*$`)

// failingChecks returns the failing checks of a healthz answer, its lines with [-], else its
// first line.
func failingChecks(status, body string) string {
	var failing []string
	for _, check := range failingCheck.FindAllStringSubmatch(body, -1) {
		failing = append(failing, check[1])
	}
	first, _, _ := strings.Cut(strings.TrimSpace(body), "\n")
	return plain.Cut(cmp.Or(strings.Join(failing, ", "), strings.TrimSuffix(status+": "+first, ": ")))
}
