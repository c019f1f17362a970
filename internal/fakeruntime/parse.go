package fakeruntime

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ParseFailpoints reads failpoints after containerd's syntax:
//
//	spec      = [ failpoint { ";" failpoint } ]
//	failpoint = name "=" term { "->" term }
//	name      = a call of runtime.v1 | "*" | "socket"
//	term      = [ count "*" ] type [ "(" argument ")" ]
//
// A term with a count applies that many times, then the next one does; a last
// term without a count applies for ever, and after a last one with a count
// nothing fails. An argument may hold ";" and "->" and parentheses in pairs.
//
// The function of a type's name describes it; `plegd simulate --help` lists the types.
// An error is one line that names the term, the value and the allowed values.
func ParseFailpoints(spec string) (Failpoints, error) {
	f := make(Failpoints)
	if i := strings.IndexFunc(spec, unicode.IsControl); i >= 0 {
		return nil, fmt.Errorf("failpoints: control character %q; want one line of name=term, with ; between", spec[i])
	}
	parts, err := splitOutside(spec, ";")
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		rpc, rest, ok := strings.Cut(part, "=")
		rpc = strings.TrimSpace(rpc)
		if !ok {
			return nil, fmt.Errorf("failpoint %q: want name=term, as in ListContainers=hang", clip(part))
		}
		if err := validateName(rpc); err != nil {
			return nil, err
		}
		if _, twice := f[rpc]; twice {
			return nil, fmt.Errorf("failpoint %s: given twice; put its terms into one, with -> between", rpc)
		}
		texts, err := splitOutside(rest, "->")
		if err != nil {
			return nil, fmt.Errorf("failpoint %s: %w", rpc, err)
		}
		var terms []Term
		for _, text := range texts {
			t, err := parseTerm(strings.TrimSpace(text))
			if err != nil {
				return nil, fmt.Errorf("failpoint %s: %w", rpc, err)
			}
			terms = append(terms, t)
		}
		if err := validate(rpc, terms); err != nil {
			return nil, err
		}
		f[rpc] = terms
	}
	return f, nil
}

func validateName(rpc string) error {
	if rpc != AnyRPC && rpc != Socket && !slices.Contains(rpcNames(), rpc) {
		return fmt.Errorf("failpoint %q: no such call; want a call of runtime.v1 such as ListContainers, %s for all, or %s",
			clip(rpc), AnyRPC, Socket)
	}
	return nil
}

// validate checks what a term alone does not show: where it may stand.
func validate(rpc string, terms []Term) error {
	if err := validateName(rpc); err != nil {
		return err
	}
	for i, t := range terms {
		last := i == len(terms)-1
		switch {
		case rpc == Socket && !t.kind.ofSocket():
			return fmt.Errorf("failpoint %s: %s is for calls; want one of %s", rpc, t.kind, join(socketKinds))
		case rpc != Socket && !t.kind.ofCalls():
			return fmt.Errorf("failpoint %s: %s is for the socket; want one of %s", rpc, t.kind, join(callKinds))
		case t.kind == kindNotReady && rpc != "Status":
			return fmt.Errorf("failpoint %s: notready is for Status", rpc)
		case t.count == 0 && !last:
			return fmt.Errorf("failpoint %s: %q has no count, so %q would never come: write 1*%s", rpc, t, terms[i+1], t)
		case t.count > 0 && t.kind.lasting():
			return fmt.Errorf("failpoint %s: %q: %s takes no count, since no connection passes it", rpc, t, t.kind)
		}
	}
	return nil
}

func parseTerm(text string) (Term, error) {
	var t Term
	body := text
	if n, rest, ok := strings.Cut(text, "*"); ok && !strings.Contains(n, "(") {
		count, err := strconv.Atoi(strings.TrimSpace(n))
		if err != nil || count < 1 {
			return t, fmt.Errorf("term %q: count %q: want a whole number, 1 or more", clip(text), clip(n))
		}
		t.count, body = count, strings.TrimSpace(rest)
	}
	name, arg, hasArg := strings.Cut(body, "(")
	if hasArg {
		if !strings.HasSuffix(arg, ")") {
			return t, fmt.Errorf("term %q: want ) at its end", clip(text))
		}
		arg = strings.TrimSpace(strings.TrimSuffix(arg, ")"))
	}
	t.kind = kind(strings.TrimSpace(name))
	if !t.kind.ofCalls() && !t.kind.ofSocket() {
		return t, fmt.Errorf("term %q: type %q: want one of %s; on %s one of %s",
			clip(text), clip(string(t.kind)), join(callKinds), Socket, join(socketKinds))
	}
	if err := t.parseArgument(arg, hasArg); err != nil {
		return t, fmt.Errorf("term %q: %w", clip(text), err)
	}
	return t, nil
}

func (t *Term) parseArgument(arg string, given bool) error {
	var err error
	switch t.kind {
	case kindError:
		name, message, _ := strings.Cut(arg, ":")
		t.text = strings.TrimSpace(message)
		t.code, err = parseCode(strings.TrimSpace(name))
	case kindDelay:
		t.pause, err = parsePause(arg)
	case kindOversize:
		t.size, err = parseSize(arg)
	case kindNotReady:
		t.text = arg
		if arg != runtimeapi.RuntimeReady && arg != runtimeapi.NetworkReady {
			err = fmt.Errorf("condition %q: want %s or %s", clip(arg), runtimeapi.RuntimeReady, runtimeapi.NetworkReady)
		}
	case kindDrip:
		bytes, interval, ok := strings.Cut(arg, ",")
		if !ok {
			return fmt.Errorf("argument %q: want bytes,interval, as in drip(1,1s)", clip(arg))
		}
		var e1, e2 error
		t.size, e1 = parseSize(strings.TrimSpace(bytes))
		t.pause, e2 = parsePause(strings.TrimSpace(interval))
		if e1 == nil && t.size == 0 {
			e1 = errors.New("bytes 0: want 1 or more")
		}
		err = cmp.Or(e1, e2)
	default:
		if given {
			err = fmt.Errorf("argument %q: %s takes none", clip(arg), t.kind)
		}
	}
	return err
}

// parseCode reads a gRPC code by its name, as Go writes it (DeadlineExceeded) or
// as the specification does (DEADLINE_EXCEEDED).
func parseCode(name string) (codes.Code, error) {
	want := strings.ReplaceAll(strings.ToLower(name), "_", "")
	var names []string
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if strings.ToLower(c.String()) == want {
			return c, nil
		}
		names = append(names, c.String())
	}
	return 0, fmt.Errorf("code %q: want one of %s", clip(name), strings.Join(names, ", "))
}

func parsePause(s string) (time.Duration, error) {
	if ms, err := strconv.ParseInt(s, 10, 32); err == nil && ms >= 0 {
		return time.Duration(ms) * time.Millisecond, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("duration %q: want one such as 150ms, 2s or 3m, 0 or more", clip(s))
	}
	return d, nil
}

// maxSize keeps a slip of the pen from taking all memory.
const maxSize = 1 << 30

func parseSize(s string) (int, error) {
	digits, unit := s, 1
	for suffix, n := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "B": 1} {
		if d, ok := strings.CutSuffix(s, suffix); ok && strings.Trim(d, "0123456789") == "" {
			digits, unit = d, n
		}
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n > uint64(maxSize/unit) {
		return 0, fmt.Errorf("size %q: want a number of bytes, or with KiB or MiB, 0 to 1024MiB", clip(s))
	}
	return int(n) * unit, nil
}

// splitOutside splits where no parenthesis is open.
func splitOutside(s, sep string) ([]string, error) {
	var parts []string
	depth, from := 0, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '(':
			depth++
		case s[i] == ')':
			depth--
			if depth < 0 {
				return nil, fmt.Errorf("%q: a ) that closes nothing", clip(s[from:i+1]))
			}
		case depth == 0 && strings.HasPrefix(s[i:], sep):
			parts = append(parts, s[from:i])
			i += len(sep) - 1
			from = i + 1
		}
	}
	if depth > 0 {
		return nil, fmt.Errorf("%q: a ( that is never closed", clip(s[from:]))
	}
	return append(parts, s[from:]), nil
}

func join(kinds []kind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

// clip keeps an error to one line of bearable length.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
