// Package proven leaves out what has passed on this machine, where that is certain.
package proven

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// Everything is the variable with which nothing counts as proven.
const Everything = "CHECKS_ALL"

// Once runs what gives the same each time, unless it has passed on this machine. All that
// decides the outcome is in its name, that of an executable which is named after what it
// is built of, and in the arguments of the run. A proof is a file beside the executable.
func Once(executable string, args string, run func() error) (proven bool, err error) {
	all := os.Getenv(Everything) != "" // asked first: go test keeps a result for those variables alone that a test has read
	sum := sha256.Sum256([]byte(args))
	proof := fmt.Sprintf("%s.passed-%x", executable, sum[:8])
	if info, err := os.Lstat(proof); err == nil && info.Mode().IsRegular() && !all {
		return true, nil
	}
	if err := run(); err != nil {
		return false, err
	}
	f, err := ownfile.Open(proof, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return false, fmt.Errorf("proof of %s: %w", filepath.Base(executable), err)
	}
	return false, nil
}
