package topo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing/fstest"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Record reads the machine whose root is root and writes down every file, folder
// and link that was looked at, one a line:
//
//	sys/devices/system/node/online = 0-1
//	sys/class/net/eth0/device -> ../../../0000:3b:00.0
//	gpus/00 = {"device":{"Type":"cuda","Index":0},"name":"NVIDIA H200",…}
//
// Replay makes a file system of it, and Recorded a finder of what the drivers said.
// A recording has no addresses but those of adapters; boot id, host name and the
// identities of GPUs are replaced.
func Record(root fs.FS, w io.Writer, finders ...Finder) error {
	r := &recorder{root: root, lines: map[string]string{}}
	h, err := Read(r, finders...)
	if err != nil {
		return err
	}
	names := nicknames(h.GPUs)
	for i, g := range h.GPUs {
		g = anonymous(g, i)
		g.Links = slices.Clone(g.Links)
		for j := range g.Links {
			if name, ok := names[g.Links[j].Peer]; ok {
				g.Links[j].Peer = name
			}
		}
		text, err := json.Marshal(g)
		if err != nil {
			return err
		}
		r.lines[fmt.Sprintf("%s/%02d", gpuDir, i)] = " = " + string(text)
	}
	r.lines["proc/sys/kernel/random/boot_id"] = " = recorded"
	r.lines["proc/sys/kernel/hostname"] = " = recorded"
	for _, name := range slices.Sorted(maps.Keys(r.lines)) {
		if _, err := fmt.Fprintf(w, "%s%s\n", name, r.lines[name]); err != nil {
			return err
		}
	}
	return nil
}

// gpuDir is where a recording has what drivers said; /sys knows nothing like it.
const gpuDir = "gpus"

// nicknames have another name for each UUID, those at the ends of links included: a link may lead to a device that this
// process does not see.
func nicknames(gpus []GPU) map[string]string {
	names := map[string]string{}
	for i, g := range gpus {
		if g.UUID != "" {
			names[g.UUID] = nickname(i)
		}
	}
	unseen := len(gpus)
	for _, g := range gpus {
		for _, l := range g.Links {
			_, known := names[l.Peer]
			if known || l.Peer == Switch || l.Peer == CPU || strings.Contains(l.Peer, ":") {
				continue
			}
			names[l.Peer] = nickname(unseen)
			unseen++
		}
	}
	return names
}

func nickname(i int) string { return fmt.Sprintf("GPU-00000000-0000-0000-0000-%012x", i) }

// anonymous is the i-th GPU without the identifiers of the card and of its network.
func anonymous(g GPU, i int) GPU {
	if g.UUID != "" {
		g.UUID = nickname(i)
	}
	if g.Hive != "" {
		g.Hive = "recorded"
	}
	if g.Fabric != nil && g.Fabric.Cluster != "" {
		f := *g.Fabric
		f.Cluster = "recorded"
		g.Fabric = &f
	}
	if g.MIG != nil {
		parts := slices.Clone(g.MIG.Parts)
		for j := range parts {
			parts[j].UUID = fmt.Sprintf("MIG-00000000-0000-0000-%04x-%012x", j+1, i)
		}
		g.MIG = &MIG{Parts: parts}
	}
	return g
}

// Recorded finds the GPUs of a recording. On a machine that is none it finds none.
func Recorded(root fs.FS) Finder {
	return func() ([]GPU, error) {
		entries, err := fs.ReadDir(root, gpuDir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		var gpus []GPU
		for _, e := range entries {
			text, err := fs.ReadFile(root, gpuDir+"/"+e.Name())
			if err != nil {
				return nil, err
			}
			var g GPU
			if err := json.Unmarshal(text, &g); err != nil {
				return nil, fmt.Errorf("%w: recording: %s/%s: %w", framework.ErrInvalid, gpuDir, e.Name(), err)
			}
			gpus = append(gpus, g)
		}
		return gpus, nil
	}
}

// recorder is a file system that remembers what was read.
type recorder struct {
	root  fs.FS
	mu    sync.Mutex
	lines map[string]string
}

func (r *recorder) note(name, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines[name] = line
}

func (r *recorder) Open(name string) (fs.File, error) { return r.root.Open(name) }

func (r *recorder) ReadFile(name string) ([]byte, error) {
	b, err := fs.ReadFile(r.root, name)
	if err == nil {
		r.note(name, " = "+strings.ReplaceAll(relevant(name, string(b)), "\n", "\\n"))
	}
	return b, err
}

// relevant leaves out what makes a recording long: the other lines of tables.
func relevant(name, text string) string {
	key := ""
	switch {
	case strings.HasSuffix(name, "meminfo"):
		key = "MemTotal"
	case strings.HasSuffix(name, "cpuinfo"):
		key = "model name"
	}
	for line := range strings.Lines(text) {
		if key != "" && strings.Contains(line, key) {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(text)
}

func (r *recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(r.root, name)
	if err != nil {
		return list, err
	}
	r.note(name, "/")
	for _, e := range list {
		if entry := name + "/" + e.Name(); strings.HasSuffix(name, "/device/net") || strings.HasSuffix(name, "/ports") {
			r.note(entry, "/")
		} else if target, err := fs.ReadLink(r.root, entry); err == nil && (name == netDir || name == rdmaDir) {
			r.note(entry, " -> "+target)
		}
	}
	return list, nil
}

func (r *recorder) Stat(name string) (fs.FileInfo, error)  { return fs.Stat(r.root, name) }
func (r *recorder) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(r.root, name) }

func (r *recorder) ReadLink(name string) (string, error) {
	target, err := fs.ReadLink(r.root, name)
	if err == nil {
		r.note(name, " -> "+target)
	}
	return target, err
}

const devices = "sys/devices/"

// Replay is the file system of a recording.
func Replay(recording string) fs.FS {
	links := map[string]string{}
	files := fstest.MapFS{}
	for line := range strings.Lines(recording) {
		if name, target, ok := strings.Cut(strings.TrimSpace(line), " -> "); ok {
			real := path.Join(path.Dir(name), target)
			if !strings.HasPrefix(real, devices) || strings.HasPrefix(name, devices) {
				continue // the kernel's links end here; others could go round in circles
			}
			links[name] = real
			files[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
		}
	}
	for line := range strings.Lines(recording) {
		line = strings.TrimSpace(line)
		if name, value, ok := strings.Cut(line, " ="); ok {
			value = strings.ReplaceAll(strings.TrimSpace(value), "\\n", "\n") + "\n"
			files[behind(links, name)] = &fstest.MapFile{Data: []byte(value), Mode: 0o444}
		} else if name, ok := strings.CutSuffix(line, "/"); ok && links[name] == "" {
			files[behind(links, name)] = &fstest.MapFile{Mode: fs.ModeDir | 0o555}
		}
	}
	for _, target := range links {
		if _, ok := files[target]; !ok {
			files[target] = &fstest.MapFile{Mode: fs.ModeDir | 0o555}
		}
	}
	return files
}

// behind is where a file really is that was read through a link.
func behind(links map[string]string, name string) string {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if target, ok := links[dir]; ok {
			return target + name[len(dir):]
		}
	}
	return name
}
