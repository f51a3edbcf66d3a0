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

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// FilePrefix is the prefix of the file name of every plugin; the name of its transport
// follows.
const FilePrefix = "mscclpp-transport-"

// Catalog says where plugins are. If a transport has an explicit path, no other place is searched
// for it: a user who names a file does not want another one if that file is missing. Otherwise the
// first folder that has a usable file wins: Dirs in order, then the built-in folder.
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

// BuiltInDir returns the folder of the plugins that came with the program, "" if there is
// none: the first that contains plugins of "plugins" beside the running program, which is
// bin/plugins in a build tree, "lib/mscclpp/plugins" beside the folder of the program,
// which is PREFIX/lib/mscclpp/plugins in an installation, and what EnvBuiltIn names.
func BuiltInDir() string {
	for _, dir := range builtInPlaces() {
		if hasPlugins(dir) {
			return dir
		}
	}
	return ""
}

// builtInPlaces lists where BuiltInDir looks.
func builtInPlaces() []string {
	var out []string
	if program, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(program); err == nil {
			program = real
		}
		bin := filepath.Dir(program)
		out = append(out, filepath.Join(bin, "plugins"), filepath.Join(filepath.Dir(bin), "lib", "mscclpp", "plugins"))
	}
	if dir := os.Getenv(EnvBuiltIn); dir != "" {
		out = append(out, dir)
	}
	return out
}

// hasPlugins reports whether a folder has a plugin: a user may have a folder of that name
// for something else.
func hasPlugins(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return transportOf(e.Name()) != "" && !e.IsDir()
	})
}

// transportOf returns the name of the transport that a file of this name serves, "" for
// none: mscclpp-transport-NAME.kernels and the like belong to a plugin.
func transportOf(file string) string {
	name, ok := strings.CutPrefix(file, FilePrefix)
	if !ok || strings.Contains(name, ".") {
		return ""
	}
	return name
}

// EnvBuiltIn is the variable by which mscclpp-run tells the programs that it starts,
// which may be in another folder, where its own plugins are.
const EnvBuiltIn = "MSCCLPP_BUILTIN_PLUGINS"

// Find returns the file that serves a transport. ErrInvalid: no file has that name; the
// text gives the nearest name. ErrUnavailable: there are files, but none can be used, or
// no plugins at all; the text says why.
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
	if len(names) == 0 {
		return "", "", fmt.Errorf("%w: transport %q: no plugin is found at all: %s", framework.ErrUnavailable, name, hint)
	}
	if similar := suggest.Name(name, names); similar != "" {
		hint = fmt.Sprintf("did you mean %q? Else %s", similar, hint)
	}
	return "", "", fmt.Errorf("%w: unknown transport %q: %s", framework.ErrInvalid, name, hint)
}

// places says where plugins are looked for.
func (c Catalog) places() []string {
	out := slices.Clone(c.Dirs)
	if len(out) == 0 {
		out = []string{"a folder of plugins.dirs (MSCCLPP_PLUGINS__DIRS), of which none is configured"}
	}
	switch {
	case slices.Contains(out, c.BuiltIn):
		return out
	case c.BuiltIn != "":
		return append(out, c.BuiltIn)
	}
	return append(out, "or beside the program, where no folder has plugins: looked in "+strings.Join(builtInPlaces(), ", "))
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
		add([]Entry{{Name: name, Path: p.Path, SHA256: p.SHA256, Source: "path", Rejected: notStarted(p.Path, p.SHA256)}})
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

// Beside returns the files of the folders with plugins whose names end in this way and that no
// other user can change; those of the first folder come first.
func (c Catalog) Beside(ending string) []string {
	dirs := slices.Clone(c.Dirs)
	for _, name := range slices.Sorted(maps.Keys(c.Paths)) {
		dirs = append(dirs, filepath.Dir(c.Paths[name].Path))
	}
	if c.BuiltIn != "" {
		dirs = append(dirs, c.BuiltIn)
	}
	var out []string
	for i, dir := range dirs {
		if !slices.Contains(dirs[:i], dir) {
			out = append(out, besideIn(dir, ending)...)
		}
	}
	return out
}

func besideIn(dir, ending string) []string {
	folder, objection, err := trustedFolder(dir)
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil || objection != nil {
		return nil
	}
	slices.Sort(names)
	var out []string
	for _, name := range names {
		if !strings.HasSuffix(name, ending) || strings.HasPrefix(name, ".") {
			continue
		}
		file, err := openAt(int(folder.Fd()), name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
		if err != nil {
			continue // a link too: what it leads to is in a folder that nobody has looked at
		}
		if distrust(file, name) == nil {
			out = append(out, filepath.Join(dir, name))
		}
		file.Close()
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
	folder, objection, err := trustedFolder(dir)
	if errors.Is(err, fs.ErrNotExist) && source == "built-in" {
		return nil
	}
	var names []string
	if err == nil {
		defer folder.Close()
		names, err = folder.Readdirnames(-1)
	}
	if err != nil {
		return []Entry{{Path: dir, Source: source, Rejected: err}}
	}
	slices.Sort(names)
	var out []Entry
	for _, file := range names {
		name, path := transportOf(file), filepath.Join(dir, file)
		if info, err := os.Stat(path); name == "" || err == nil && info.IsDir() {
			continue
		}
		rejected := unusable(path, folder)
		if rejected == nil {
			rejected = objection
		}
		out = append(out, Entry{Name: name, Path: path, Source: source, Rejected: rejected})
	}
	return out
}

// unusable says why a file that was found in an open folder is not started. It must belong to
// this user, to root, or to the owner of the running program, and others must not be able to
// change it or, if it is a link, what it leads to.
func unusable(path string, in *os.File) error {
	const advice = "%w; name it by its path to use it"
	file, err := openAt(int(in.Fd()), filepath.Base(path), unix.O_PATH)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		d, err := follow(path)
		if err != nil {
			return err
		}
		defer d.close()
		if objection := d.distrustFolder(); objection != nil {
			return fmt.Errorf(advice, objection)
		}
		file, path = d.target, d.path
	}
	if err := executable(file); err != nil {
		return err
	}
	if err := distrust(file, path); err != nil {
		return fmt.Errorf(advice, err)
	}
	return nil
}
