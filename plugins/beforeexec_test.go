package plugins

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/beforeexec"
)

// A plugin that is killed before it has become the program is one that died. The host opens
// the file of a plugin itself, so the killer waits at the interpreter that the file names.
func TestKilledBeforeTheProgram(t *testing.T) {
	noneLeft(t)
	dir := t.TempDir()
	spec := Spec{Name: "acme", Path: filepath.Join(dir, "plugin"), Log: testLog(t), StartTimeout: hang}
	shell := filepath.Join(dir, "sh")
	if out, err := exec.Command("cp", "/bin/sh", shell).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(spec.Path, []byte("#!"+shell+"\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	await := beforeexec.Kill(t, shell)
	client, err := Open(t.Context(), spec)
	if err == nil {
		client.Shutdown()
	}
	await()
	var e *StartError
	if !errors.As(err, &e) || e.Reason != Died || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("%v, expected that it died of SIGKILL", err)
	}
}
