package check

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// cached names the executable of a program, by the hash of all that goes into it, and
// locks the name against other processes that want to build it.
func cached(name, sources string, args []string) (path string, unlock func(), err error) {
	dir, err := ownfile.Cache("check")
	if err != nil {
		return "", nil, fmt.Errorf("check: %w", err)
	}
	sum := sha256.Sum256([]byte(sources + "\x00" + strings.Join(args, "\x00")))
	path = filepath.Join(dir, strings.TrimSuffix(name, filepath.Ext(name))+"-"+hex.EncodeToString(sum[:8]))
	if unlock, err = ownfile.Lock(path + ".lock"); err != nil {
		return "", nil, fmt.Errorf("check: %w", err)
	}
	return path, unlock, nil
}
