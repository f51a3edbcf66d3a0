package setup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/config"
)

// A log is not written through a link that another user has put in its place.
func TestLogBehindAnothersLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	dir := t.TempDir()
	mine, link := filepath.Join(dir, "mine"), filepath.Join(dir, "log")
	if err := errors.Join(os.WriteFile(mine, nil, 0o600), os.Symlink(mine, link)); err != nil {
		t.Fatal(err)
	}
	_, closer, err := OpenLog(config.Log{Level: "info", File: link}, "0")
	if err != nil {
		t.Fatalf("own link: %v", err)
	}
	closer.Close()
	if err := os.Lchown(link, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenLog(config.Log{Level: "info", File: link}, "0"); !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v, expected that it is another user's", err)
	}
}
