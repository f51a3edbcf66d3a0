package observe

import (
	"os"
	"path/filepath"
	"strings"
)

// Process is the folder in /proc that shows the files and the memory of a process: its own, or, where its main thread has ended before the
// others, that of a thread which lives. The kernel shows nothing of the process itself then. process is /proc and its number.
func Process(process string) string {
	if alive(process) {
		return process
	}
	threads, _ := filepath.Glob(process + "/task/[0-9]*") // the form is right
	for _, thread := range threads {
		if alive(thread) {
			return thread
		}
	}
	return process
}

// alive reports whether a thread has not ended: a process is there as long as one of its threads is.
func alive(thread string) bool {
	b, err := os.ReadFile(thread + "/stat")
	if err != nil {
		return false
	}
	n := strings.LastIndex(string(b), ") ") // behind the name, which may have that too
	return n >= 0 && n+2 < len(b) && !strings.ContainsRune("ZXx", rune(b[n+2]))
}

// shown is a path of a file of a process, /proc/PID/fd/N, in the folder that shows it.
func shown(path string) string {
	if process, file, found := strings.Cut(path, "/fd/"); found {
		return Process(process) + "/fd/" + file
	}
	return path
}
