package main

import (
	"os"
	"os/signal"
	"syscall"
)

// forJob takes the signals that a job is to hear of.
func forJob() chan os.Signal {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP)
	if !signal.Ignored(syscall.SIGHUP) { // else nohup has started this process
		signal.Notify(signals, syscall.SIGHUP)
	}
	return signals
}
