package fakeruntime

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ParseFailpoints reads failpoints after containerd's syntax:
//
//	spec      = [ failpoint { ";" failpoint } ]
//	failpoint = name "=" term { "->" term }
//	name      = a call of runtime.v1 | "*" | "socket"
//	term      = [ count "*" ] type [ "(" argument ")" ]
//
// A term with a count applies that many times, then the next one does; a last
// term without a count applies without limit, and after a last one with a count
// nothing fails. An argument may hold ";" and "->" and parentheses in pairs.
//
// The function of a type's name describes it; `plegd simulate --help` lists the types.
// An error is one line that names the term, the value and the allowed values.
func ParseFailpoints(spec string) (Failpoints, error) {
	f := make(Failpoints)
	if strings.ContainsFunc(spec, unicode.IsControl) {
		return nil, fmt.Errorf("failpoints %s: want one line of name=term, with ; between", quoted(spec))
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
		name, rest, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if !ok {
			return nil, fmt.Errorf("failpoint %s: want name=term, as in ListContainers=hang", quoted(part))
		}
		if _, twice := f[name]; twice {
			return nil, fmt.Errorf("failpoint %s: given twice; put its terms into one, with -> between", quoted(name))
		}
		texts, err := splitOutside(rest, "->")
		if err != nil {
			return nil, err
		}
		for _, text := range texts {
			t, err := parseTerm(strings.TrimSpace(text))
			if err != nil {
				return nil, fmt.Errorf("failpoint %s: %w", quoted(name), err)
			}
			f[name] = append(f[name], t)
		}
		if err := validate(name, f[name]); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// validate checks which terms a name may have.
func validate(name string, terms []Term) error {
	if name != AnyRPC && name != Socket && !slices.Contains(rpcNames(), name) {
		return fmt.Errorf("failpoint %s: no such call; want a call of runtime.v1 such as ListContainers, %s for all, or %s",
			quoted(name), AnyRPC, Socket)
	}
	allowed := callKinds
	if name == Socket {
		allowed = socketKinds
	}
	for i, t := range terms {
		switch {
		case !slices.Contains(allowed, t.kind):
			return fmt.Errorf("failpoint %s: type %s: want one of %s", name, quoted(string(t.kind)), joined(allowed, ", "))
		case t.kind == kindNotReady && name != "Status":
			return fmt.Errorf("failpoint %s: notready is for Status", name)
		case t.count == 0 && i < len(terms)-1:
			return fmt.Errorf("failpoint %s: %q has no count, so %q would never come: write 1*%s", name, t, terms[i+1], t)
		case t.count > 0 && (t.kind == kindNoAccept || t.kind == kindFreeze):
			return fmt.Errorf("failpoint %s: %q: %s takes no count, since no connection passes it", name, t, t.kind)
		}
	}
	return nil
}

// termSyntax is: optional count, type, optional argument.
var termSyntax = regexp.MustCompile(`^(?:(\d+)\s*\*\s*)?([a-z0-9]+)\s*(?:\((.*)\))?$`)

func parseTerm(text string) (Term, error) {
	m := termSyntax.FindStringSubmatch(text)
	if m == nil {
		return Term{}, fmt.Errorf("term %s: want [count*]type[(argument)], as in hang or 3*error(Unavailable)", quoted(text))
	}
	t := Term{kind: kind(m[2])}
	var err error
	if m[1] != "" {
		if t.count, err = strconv.Atoi(m[1]); err != nil || t.count < 1 {
			return t, fmt.Errorf("term %s: count: want a whole number, 1 or more", quoted(text))
		}
	}
	argument := strings.TrimSpace(m[3])
	switch t.kind {
	case kindError:
		name, message, _ := strings.Cut(argument, ":")
		t.text = strings.TrimSpace(message)
		t.code, err = parseCode(strings.TrimSpace(name))
	case kindDelay:
		t.pause, err = time.ParseDuration(argument)
		if err != nil || t.pause < 0 {
			err = fmt.Errorf("duration %s: want one such as 150ms, 2s or 3m, 0 or more", quoted(argument))
		}
	case kindOversize:
		t.size, err = parseSize(argument)
	case kindNotReady:
		t.text = argument
		if argument != cri.RuntimeReady && argument != cri.NetworkReady {
			err = fmt.Errorf("condition %s: want %s or %s", quoted(argument), cri.RuntimeReady, cri.NetworkReady)
		}
	default:
		if argument != "" {
			err = fmt.Errorf("argument %s: %s takes none", quoted(argument), t.kind)
		}
	}
	if err != nil {
		return t, fmt.Errorf("term %s: %w", quoted(text), err)
	}
	return t, nil
}

// parseCode reads a gRPC code by its name, as Go writes it (DeadlineExceeded) or
// as the specification does (DEADLINE_EXCEEDED).
func parseCode(name string) (codes.Code, error) {
	want := strings.ReplaceAll(strings.ToLower(name), "_", "")
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if strings.ToLower(c.String()) == want {
			return c, nil
		}
	}
	return 0, fmt.Errorf("code %s: want one of gRPC's, such as Unavailable or DeadlineExceeded", quoted(name))
}

// maxSize keeps a typing error from taking all memory.
const maxSize = 1 << 30

func parseSize(s string) (int, error) {
	digits, unit := s, 1
	if d, ok := strings.CutSuffix(s, "MiB"); ok {
		digits, unit = d, 1<<20
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n > uint64(maxSize/unit) {
		return 0, fmt.Errorf("size %s: want a number of bytes, or with MiB, 0 to 1024MiB", quoted(s))
	}
	return int(n) * unit, nil
}

// splitOutside splits where no parenthesis is open.
func splitOutside(s, separator string) ([]string, error) {
	var parts []string
	depth, from := 0, 0
	for i := 0; i < len(s) && depth >= 0; i++ {
		switch {
		case s[i] == '(':
			depth++
		case s[i] == ')':
			depth--
		case depth == 0 && strings.HasPrefix(s[i:], separator):
			parts = append(parts, s[from:i])
			i += len(separator) - 1
			from = i + 1
		}
	}
	if depth != 0 {
		return nil, fmt.Errorf("failpoints %s: want parentheses in pairs", quoted(s))
	}
	return append(parts, s[from:]), nil
}

// quoted returns the head of a value, so that an error stays one line.
func quoted(s string) string {
	const most = 60
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strconv.Quote(s)
}
