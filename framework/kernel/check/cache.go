package check

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// cached names the executable of a program, by the hash of all that goes into it, and
// locks the name against other processes that want to build it.
func cached(name, sources string, args []string) (path string, unlock func(), err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "mscclpp-go", "check")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("check: %w", err)
	}
	sum := sha256.Sum256([]byte(sources + "\x00" + strings.Join(args, "\x00")))
	path = filepath.Join(dir, strings.TrimSuffix(name, filepath.Ext(name))+"-"+hex.EncodeToString(sum[:8]))
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("check: %w", err)
	}
	for {
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		lock.Close()
		return "", nil, fmt.Errorf("check: lock: %w", err)
	}
	return path, func() { lock.Close() }, nil
}
