package plugins

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// FilePrefix is the prefix of the file name of every plugin; the name of its transport
// follows.
const FilePrefix = "mscclpp-transport-"

// Catalog says where plugins are. If a transport has an explicit path, no other place
// is searched for it: whoever names a file does not want another one if that file is
// missing. Otherwise the first folder that has a usable file wins: Dirs in order, then
// the built-in folder.
type Catalog struct {
	Paths   map[string]Pinned // by name of the transport
	Dirs    []string          // configured folders
	BuiltIn string            // folder of the plugins that came with the program; see BuiltInDir
}

// Pinned is an explicit path.
type Pinned struct {
	Path   string
	SHA256 string // hexadecimal; "" for any
}

// Entry is a file that the catalog found.
type Entry struct {
	Name     string // of the transport
	Path     string
	SHA256   string // pinned, not computed
	Source   string // "path", "built-in" or the configured folder
	Rejected error  // why it is not used; nil if it is
}

// BuiltInDir returns the folder "plugins" beside the running program, which is
// bin/plugins in a build tree. If there is none, it returns "lib/mscclpp/plugins"
// beside the folder of the program, which is PREFIX/lib/mscclpp/plugins in an
// installation. If neither exists, it returns what EnvBuiltIn names, or "".
func BuiltInDir() string {
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	bin := filepath.Dir(program)
	for _, dir := range []string{filepath.Join(bin, "plugins"), filepath.Join(filepath.Dir(bin), "lib", "mscclpp", "plugins")} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return os.Getenv(EnvBuiltIn)
}

// EnvBuiltIn is the variable by which mscclpp-run tells the programs that it starts,
// which may be in another folder, where its own plugins are.
const EnvBuiltIn = "MSCCLPP_BUILTIN_PLUGINS"

// Find returns the file that serves a transport. ErrInvalid: no file has that name; the
// text gives the nearest name. ErrUnavailable: there are files, but none can be used;
// the text says why.
func (c Catalog) Find(name string) (path, sha256 string, err error) {
	var rejected []error
	var names []string
	for _, e := range c.List() {
		if e.Name != name {
			names = append(names, e.Name)
			continue
		}
		if e.Rejected == nil {
			return e.Path, e.SHA256, nil
		}
		rejected = append(rejected, fmt.Errorf("%s: %w", e.Path, e.Rejected))
	}
	if len(rejected) > 0 {
		return "", "", fmt.Errorf("%w: transport %q: %w", framework.ErrUnavailable, name, errors.Join(rejected...))
	}
	hint := "expected a file " + FilePrefix + name + " in " + strings.Join(c.places(), ", ")
	if near := suggest.Name(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q? Else %s", near, hint)
	}
	return "", "", fmt.Errorf("%w: unknown transport %q: %s", framework.ErrInvalid, name, hint)
}

func (c Catalog) places() []string {
	out := slices.Clone(c.Dirs)
	if c.BuiltIn != "" {
		out = append(out, c.BuiltIn)
	}
	if len(out) == 0 {
		return []string{"a folder of plugins.dirs (MSCCLPP_PLUGINS__DIRS), of which none is configured, or in the folder plugins beside the program"}
	}
	return out
}

// List returns every candidate in the order in which they are considered. Of the
// candidates for one transport, all but the one that is used are rejected: this is the
// explicit path if there is one, else the first usable file. A file that is found
// several times, as in a folder that is named twice, is listed once, with its first
// source.
func (c Catalog) List() []Entry {
	var out []Entry
	listed := map[Entry]bool{}
	add := func(all []Entry) {
		for _, e := range all {
			if key := (Entry{Name: e.Name, Path: located(e.Path)}); !listed[key] {
				listed[key] = true
				out = append(out, e)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Paths)) {
		p := c.Paths[name]
		add([]Entry{{Name: name, Path: p.Path, SHA256: p.SHA256, Source: "path", Rejected: unusable(p.Path, false)}})
	}
	for _, dir := range c.Dirs {
		add(listDir(dir, dir))
	}
	if c.BuiltIn != "" {
		add(listDir(c.BuiltIn, "built-in"))
	}
	used := map[string]string{}
	for i := range out {
		e := &out[i]
		if first, taken := used[e.Name]; taken && e.Rejected == nil {
			e.Rejected = fmt.Errorf("%s comes first", first)
		} else if e.Rejected == nil || i < len(c.Paths) {
			used[e.Name] = e.Path
		}
	}
	return out
}

// located is where a file is, whatever links lead to its folder. The file itself may be
// a link: what is not used from one folder may be from another.
func located(path string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return filepath.Clean(path)
}

// listDir lists the plugins of a folder. A folder that cannot be read is one
// rejected entry without a name; one that does not exist is none.
func listDir(dir, source string) []Entry {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && source == "built-in" {
		return nil
	}
	if err != nil {
		return []Entry{{Path: dir, Source: source, Rejected: err}}
	}
	shared := sharedFolder(dir)
	var out []Entry
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), FilePrefix)
		path := filepath.Join(dir, e.Name())
		if !ok || name == "" {
			continue
		}
		if info, err := os.Stat(path); strings.Contains(name, ".") || err == nil && info.IsDir() {
			continue // mscclpp-transport-NAME.kernels and the like belong to a plugin
		}
		rejected := unusable(path, true)
		if rejected == nil {
			rejected = shared
		}
		out = append(out, Entry{Name: name, Path: path, Source: source, Rejected: rejected})
	}
	return out
}

// sharedFolder objects to a folder in which anyone may place programs.
func sharedFolder(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o002 != 0 {
		return fmt.Errorf("every user may write to %s: expected mode %#o", dir, info.Mode().Perm()&^0o002)
	}
	return nil
}

// unusable says why a file is not started. A file that was found, rather than named,
// must belong to this user, to root, or to whoever owns the running program, and
// others must not be able to change it.
func unusable(path string, found bool) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("is a %s, expected a program", typeOf(info.Mode()))
	case info.Mode().Perm()&0o111 == 0 || unix.Access(path, unix.X_OK) != nil:
		return fmt.Errorf("mode %#o: expected permission to execute", info.Mode().Perm())
	}
	if !found {
		return nil
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() && int(st.Uid) != programOwner() {
		return fmt.Errorf("belongs to user %d, expected %d or root; name it by its path to use it", st.Uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o002 != 0 {
		return fmt.Errorf("mode %#o: every user may change it; name it by its path to use it", info.Mode().Perm())
	}
	return nil
}

// typeOf is the word for what is no regular file.
func typeOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// programOwner is the user who owns the running program, -1 if unknown.
func programOwner() int {
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return -1
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
