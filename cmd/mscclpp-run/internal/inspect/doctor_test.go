package inspect

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// put writes a file of a made-up system.
func put(t *testing.T, root, path, text string) {
	t.Helper()
	full := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func find(list []finding, area string) finding {
	for _, f := range list {
		if f.Area == area {
			return f
		}
	}
	return finding{}
}

func TestExamineHost(t *testing.T) {
	root := t.TempDir()
	put(t, root, "proc/sys/kernel/yama/ptrace_scope", "1\n")
	list := examineHost(root)
	if f := find(list, "peer memory"); f.Grade != warn || !strings.Contains(f.Detail, "ptrace_scope=1") {
		t.Errorf("restricted ptrace: %+v", f)
	}
	if f := find(list, "/dev/shm"); f.Grade != note {
		t.Errorf("no /dev/shm: %+v", f)
	}
	if f := find(list, "host identity"); f.Grade != warn {
		t.Errorf("no boot id: %+v", f)
	}
	if f := find(list, "shared memory"); f.Grade != good {
		t.Errorf("memfd: %+v", f)
	}
	put(t, root, "proc/sys/kernel/yama/ptrace_scope", "0\n")
	if f := find(examineHost(root), "peer memory"); f.Grade != good {
		t.Errorf("free ptrace: %+v", f)
	}
}

func TestExamineDevices(t *testing.T) {
	root := t.TempDir()
	if list := examineDevices(root, false); len(list) != 1 || list[0].Grade != note {
		t.Errorf("nothing there: %+v", list)
	}
	if list := examineDevices(root, true); len(list) != 0 {
		t.Errorf("devices of other makers alone: %+v", list)
	}
	put(t, root, "dev/nvidia0", "")
	put(t, root, "dev/nvidia1", "")
	put(t, root, "dev/nvidiactl", "")
	put(t, root, "sys/class/infiniband/mlx5_0", "")
	list := examineDevices(root, false)
	if len(list) != 2 || list[0].Detail != "NVIDIA GPU: 2" || list[1].Detail != "RDMA NIC: 1" {
		t.Errorf("%+v", list)
	}
}

func TestMissingToolsAreNoFailure(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, f := range examineTools() {
		if f.Grade != note || !strings.Contains(f.Detail, "make deps") {
			t.Errorf("%+v", f)
		}
	}
}

// A configured transport that does not work is a failure, another one is not.
func TestExaminePlugins(t *testing.T) {
	broken := found{Entry: plugins.Entry{Name: "x", Path: "/p"}, err: errors.New("not executable")}
	works := found{Entry: plugins.Entry{Name: "y", Path: "/q"}}
	works.info.Description = framework.Description{Version: "1.2", Channels: []framework.Kind{framework.KindMemory, framework.KindPort}}
	list := examinePlugins([]found{broken, works}, []string{"shm"})
	if f := find(list, "plugin y"); f.Grade != good || f.Detail != "1.2, memory,port channels, /q" {
		t.Errorf("%+v", f)
	}
	if f := find(list, "plugin x"); f.Grade != warn || f.Detail != "not executable" {
		t.Errorf("%+v", f)
	}
	if f := find(list, "plugin shm"); f.Grade != fail {
		t.Errorf("%+v", f)
	}
}

func TestReport(t *testing.T) {
	var out bytes.Buffer
	env := &verb.Env{Stdout: &out}
	if err := report(env, []finding{{"a", good, "fine"}, {"b", warn, "slow"}}, "table"); err != nil || !strings.HasPrefix(out.String(), "ok    a ") {
		t.Errorf("%v, %q", err, out.String())
	}
	out.Reset()
	var c *verb.Error
	if err := report(env, []finding{{"a", fail, "broken"}}, "json"); !errors.As(err, &c) || c.Code != 1 || !strings.Contains(out.String(), `"grade":"FAIL"`) {
		t.Errorf("%v, %q", err, out.String())
	}
}

func TestExamineAMD(t *testing.T) {
	env := map[string]string{}
	lookup := func(name string) (string, bool) { v, set := env[name]; return v, set }
	if list := examineAMD(topo.Replay("sys/"), lookup); list != nil {
		t.Errorf("without the driver: %+v", list)
	}
	recording, err := os.ReadFile("../../../../framework/topo/kfd/testdata/mi250.machine")
	if err != nil {
		t.Fatal(err)
	}
	if list := examineAMD(topo.Replay(string(recording)), lookup); len(list) != 1 || list[0].Grade != good || list[0].Detail != "8 of gfx90a; xGMI links join 12 of 28 pairs" {
		t.Errorf("%+v", list)
	}
	env["ROCR_VISIBLE_DEVICES"] = "3,4"
	if list := examineAMD(topo.Replay(string(recording)), lookup); len(list) != 2 || list[1].Grade != note || list[1].Detail != "programs see 2 of them: ROCR_VISIBLE_DEVICES=3,4" {
		t.Errorf("%+v", list)
	}
	hidden := strings.ReplaceAll(string(recording), "dev/kfd", "dev/other")
	if list := examineAMD(topo.Replay(hidden), lookup); len(list) != 1 || list[0].Grade != warn || !strings.Contains(list[0].Detail, "/dev/kfd is not there") {
		t.Errorf("%+v", list)
	}
}
