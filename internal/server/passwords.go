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

// unknownUserHash is compared for a user that does not exist, so that the time of an answer does
// not tell whether one does. It is of the same cost as the toolkit's.
const unknownUserHash = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"

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

// credentials are a client's. The hash is the configured one, empty for an unknown user.
type credentials struct{ user, password, hash string }

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
	hash := c.hash
	if hash == "" {
		hash = unknownUserHash
	}
	err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(c.password))
	if err != nil || c.hash == "" {
		return errWrongPassword
	}
	return nil
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
