package chain

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/plegd/plegd/internal/health"
)

// mountFingerprint returns the file system's type, and for a network file system a
// hash of its server. source is that of mountinfo: "server:/path" or "//server/path".
func mountFingerprint(fsType, source string) string {
	server, _, remote := strings.Cut(source, ":/")
	if s, ok := strings.CutPrefix(source, "//"); ok {
		server, _, _ = strings.Cut(s, "/")
		remote = true
	}
	if !remote {
		return health.FingerprintWord(fsType)
	}
	sum := sha256.Sum256([]byte(server))
	return health.FingerprintWord(fsType) + ":" + hex.EncodeToString(sum[:4])
}

// deviceFingerprint returns a block device's model, or the type of the file system
// on it if the model is not known.
func deviceFingerprint(fsType, model string) string {
	if model = health.FingerprintWord(strings.TrimSpace(model)); model != "" {
		return model
	}
	return health.FingerprintWord(fsType)
}
