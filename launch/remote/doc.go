// Package remote starts a job on several hosts over ssh, where no engine does it.
//
// The launcher runs the ssh program once for each host, and there mscclpp-run as an
// agent. Agent and launcher talk in frames over the standard input and output of ssh:
//
//	agent                                launcher
//	hello: version, processors        ->             all hosts have to answer
//	                                  <- count       to all hosts, where there is one rank for each device
//	counted: devices, or why none     ->
//	                                  <- spec        to the host of rank 0, which listens
//	rendezvous: unique id, address    ->
//	                                  <- spec        to all others, with that id
//	output, reports, the first failure->
//	                                  <- signals, standard input of rank 0
//	end: exit code                    ->
//
// So nothing starts before every host has answered, and the job's secret travels
// inside ssh alone: never in a command line, never through a file. Each end notices the
// other's death by the end of the stream; an agent without a launcher ends its ranks.
//
// The remote host needs mscclpp-run at the path where the launcher has it (or where
// Job.Agent says), and the program.
package remote
