package main

// #include <stdlib.h>
// #include "internal.h"
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/internal/programdir"
	"github.com/mscclpp-go/mscclpp/internal/version"
	"github.com/mscclpp-go/mscclpp/plugins"
)

//export mscclppGoVersion
func mscclppGoVersion(text *C.char, size C.size_t) {
	to := unsafe.Slice((*byte)(unsafe.Pointer(text)), int(size))
	to[copy(to[:len(to)-1], version.Full())] = 0
}

//export mscclppGoSetting
func mscclppGoSetting(key, value *C.char, size C.size_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	e, err := config.Load(sources("", nil))
	if err != nil {
		return fail(f, err)
	}
	text, ok := e.Value(C.GoString(key))
	if !ok {
		return fail(f, fmt.Errorf("%w: setting %q: expected a key of the configuration", framework.ErrInvalid, C.GoString(key)))
	}
	to := unsafe.Slice((*byte)(unsafe.Pointer(value)), int(size))
	if len(text) >= len(to) {
		return fail(f, fmt.Errorf("%w: setting %s: %d bytes for %q: expected at least %d", framework.ErrInvalid, C.GoString(key), len(to), text, len(text)+1))
	}
	to[copy(to, text)] = 0
	return fail(f, nil)
}

// getenv looks at the variables as they are now. Those of package os are of the time at which
// the library was loaded, and a host may have set others since.
func getenv(name string) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.GoString(C.getenv(c)) // "" for NULL
}

func variables() []string {
	var out []string
	at := C.environment()
	for i := 0; at != nil; i++ {
		s := *(**C.char)(unsafe.Add(unsafe.Pointer(at), i*int(unsafe.Sizeof(at))))
		if s == nil {
			break
		}
		out = append(out, C.GoString(s))
	}
	return out
}

// sources says where the configuration comes from.
func sources(file string, settings []config.Setting) config.Sources {
	s := config.Standard(file, settings)
	s.Environ = variables()
	if file == "" {
		s.Job = getenv("MSCCLPP_CONFIG")
	}
	return s
}

// settle prepares Go's runtime and finds the plugins, once.
var settle = sync.OnceValue(func() string {
	// Ranks that wait in C keep one of Go's processors until the runtime notices; calls of the
	// program must not wait for that. Beyond some processors, more threads are of no use here.
	runtime.GOMAXPROCS(min(runtime.NumCPU()+2, 16))
	if fd, ok := poller(); ok {
		C.forked_poller(C.int(fd))
	}
	dir := pluginFolder(C.GoString(C.own_file()), getenv(plugins.EnvBuiltIn))
	programdir.Set(dir) // for transports that are embedded
	return dir
})

// poller finds the descriptor with which the runtime polls all others: the one that polls a pipe made for the question. There
// is none where /proc is not the kernel's own, as in some sandboxes.
func poller() (fd int, ok bool) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, false
	}
	defer r.Close()
	defer w.Close()
	raw, err := r.SyscallConn()
	if err != nil {
		return 0, false
	}
	var line string
	if err := raw.Control(func(fd uintptr) { line = fmt.Sprintf("tfd:%9d ", fd) }); err != nil {
		return 0, false
	}
	entries, _ := os.ReadDir("/proc/thread-self/fd")
	for _, e := range entries {
		if to, err := os.Readlink("/proc/thread-self/fd/" + e.Name()); err != nil || to != "anon_inode:[eventpoll]" {
			continue
		}
		info, err := os.ReadFile("/proc/thread-self/fdinfo/" + e.Name())
		if err == nil && strings.Contains(string(info), line) {
			fd, err = strconv.Atoi(e.Name())
			return fd, err == nil
		}
	}
	return 0, false
}

// pluginFolder finds the folder of the plugins that come with the library: the first that
// has plugins of "mscclpp/plugins" and "plugins" beside the library, "plugins" beside its
// folder, which is bin/plugins in a build tree, and what mscclpp-run says. The running program
// is python, or the user's, and has none.
func pluginFolder(library, launcher string) string {
	if real, err := filepath.EvalSymlinks(library); err == nil {
		library = real
	}
	var places []string
	if abs, err := filepath.Abs(library); err == nil && library != "" {
		dir := filepath.Dir(abs)
		places = append(places, filepath.Join(dir, "mscclpp", "plugins"), filepath.Join(dir, "plugins"), filepath.Join(filepath.Dir(dir), "plugins"))
	}
	for _, dir := range append(places, launcher) {
		if dir != "" && hasPlugins(dir) {
			return dir
		}
	}
	return ""
}

// hasPlugins reports whether a folder has a plugin: a user may have a folder of that name for
// something else.
func hasPlugins(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return !e.IsDir() && strings.HasPrefix(e.Name(), plugins.FilePrefix)
	})
}
