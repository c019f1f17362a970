package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

const (
	maxPasswordQueue = 8  // clients that wait for a check; further ones are refused
	maxKnownRight    = 64 // passwords that are remembered
)

// fillerHash is a bcrypt hash of any cost that no password has.
const fillerHash = "$2y$%02d$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"

var (
	errWrongPassword = errors.New("wrong password")
	errPasswordsBusy = errors.New("too many passwords are being checked")
)

// passwords checks passwords. One bcrypt comparison takes 50 ms or more of CPU time on purpose,
// so one runs at a time, each client waits for at most one, and right passwords are remembered.
type passwords struct {
	comparing chan struct{} // has a value while a comparison runs

	mu      sync.Mutex
	waiting map[netip.Prefix]bool
	right   map[[sha256.Size]byte]bool
}

// credentials are a client's. The hash is the configured one, empty for an unknown user. The cost
// is the highest one that the file has.
type credentials struct {
	user, password, hash string
	cost                 int
}

func newPasswords() *passwords {
	return &passwords{
		comparing: make(chan struct{}, 1),
		waiting:   map[netip.Prefix]bool{},
		right:     map[[sha256.Size]byte]bool{},
	}
}

// check returns nil for the right password, errWrongPassword, or errPasswordsBusy.
func (p *passwords) check(ctx context.Context, client netip.Prefix, c credentials) error {
	key := c.key()
	p.mu.Lock()
	right := p.right[key]
	busy := p.waiting[client] || len(p.waiting) >= maxPasswordQueue
	ask := !right && !busy
	if ask {
		p.waiting[client] = true
	}
	p.mu.Unlock()
	switch {
	case right:
		return nil
	case busy:
		return errPasswordsBusy
	}
	defer func() {
		p.mu.Lock()
		delete(p.waiting, client)
		p.mu.Unlock()
	}()
	select {
	case p.comparing <- struct{}{}:
	case <-ctx.Done():
		return errPasswordsBusy
	}
	err := c.compare()
	<-p.comparing
	if err == nil {
		p.remember(key)
	}
	return err
}

// remembers reports whether a password has been found right before.
func (p *passwords) remembers(c credentials) bool {
	key := c.key()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.right[key]
}

func (c credentials) key() [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q", c.user, c.password, c.hash))
}

func (c credentials) compare() error {
	result := errWrongPassword
	for _, hash := range c.hashes() {
		err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(c.password))
		if err == nil && hash == c.hash {
			result = nil
		}
	}
	return result
}

// hashes returns the hashes that are compared. Each user, known or not, costs as much as one hash
// of the highest cost, so that the time of an answer does not show which users exist: each step of
// the cost doubles the work, so fillers of every cost from the user's up make up the difference.
func (c credentials) hashes() []string {
	cost, err := bcrypt.Cost([]byte(c.hash))
	if err != nil {
		return []string{fmt.Sprintf(fillerHash, c.cost)}
	}
	out := []string{c.hash}
	for ; cost < c.cost; cost++ {
		out = append(out, fmt.Sprintf(fillerHash, cost))
	}
	return out
}

// remember adds the key of a right password. All are forgotten first if there are too many.
func (p *passwords) remember(key [sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.right) >= maxKnownRight {
		clear(p.right)
	}
	p.right[key] = true
}
