// A kubelet's inside: what the API server proxies exec, logs and port-forward to, over the protocols that containerd
// speaks, for they are served by the same package (k8s.io/cri-streaming). Its containers are folders, its commands
// plain processes of this machine.
//
// usage: kubelet FOLDER AUTHORITY CERTIFICATE KEY
//
// A pod is the folder FOLDER/NAMESPACE/NAME. Commands run in it; FILE.log in it is the log of the container FILE, which
// a follower reads until FILE.ended is there; FILE.previous.log is the log of its last instance. As in containerd, the
// end of a connection is the end of the command's standard input, and nothing else: it goes on until it ends.
//
// Only holders of a certificate of AUTHORITY are answered. The first line on standard output is the port.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	idle     = 4 * time.Hour
	creation = 30 * time.Second
	look     = 20 * time.Millisecond // between two looks at a log that is followed
)

type kubelet struct{ folder string }

// pod gives the folder of a pod, or answers that there is none.
func (k kubelet) pod(w http.ResponseWriter, r *http.Request) (string, bool) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	folder := filepath.Join(k.folder, namespace, name)
	if _, err := os.Stat(folder); err != nil || !plain(namespace) || !plain(name) || !plain(r.PathValue("container")) {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return "", false
	}
	return folder, true
}

// plain tells whether a name is that of a file, and leads nowhere else.
func plain(name string) bool { return name == filepath.Base(name) && name != ".." || name == "" }

func (k kubelet) exec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if folder, found := k.pod(w, r); found {
		remotecommand.ServeExec(w, r, k, folder, "", r.PathValue("container"), r.URL.Query()["command"], options,
			idle, creation, remotecommand.SupportedStreamingProtocols)
	}
}

// ExecInContainer runs a command with the streams of a connection. It ends when the command has, and nobody holds its
// output any more.
func (k kubelet) ExecInContainer(_ context.Context, folder, _, _ string, words []string, in io.Reader,
	out, err io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	command := exec.Command(words[0], words[1:]...)
	command.Dir = folder
	if out != nil {
		command.Stdout = out
	}
	if err != nil {
		command.Stderr = err
	}
	var input io.WriteCloser
	if in != nil {
		pipe, problem := command.StdinPipe()
		if problem != nil {
			return problem
		}
		input = pipe
	}
	if problem := command.Start(); problem != nil {
		return fmt.Errorf("failed to exec in container: OCI runtime exec failed: %w", problem)
	}
	if in != nil {
		go func() {
			_, _ = io.Copy(input, in)
			_ = input.Close()
		}()
	}
	problem := command.Wait()
	var exit *exec.ExitError
	if !errors.As(problem, &exit) {
		return problem
	}
	code := exit.ExitCode()
	if code < 0 {
		code = 137
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
}

func (k kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if folder, found := k.pod(w, r); found {
		portforward.ServePortForward(w, r, k, folder, "", options, idle, creation, portforward.SupportedProtocols)
	}
}

// PortForward copies between a connection's stream and a port of this machine until the port's side has ended, or the
// stream is cut off: what containerd does.
func (k kubelet) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	connection, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("failed to connect to localhost:%d inside namespace: %w", port, err)
	}
	defer connection.Close()
	down := make(chan error, 1)
	go func() {
		_, err := io.Copy(stream, connection)
		down <- err
	}()
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite()
	}()
	return <-down
}

func (k kubelet) logs(w http.ResponseWriter, r *http.Request) {
	folder, found := k.pod(w, r)
	if !found {
		return
	}
	container, query := r.PathValue("container"), r.URL.Query()
	name := container + ".log"
	if query.Get("previous") == "true" {
		name = container + ".previous.log"
	}
	file, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		said := fmt.Sprintf("previous terminated container %q in pod %q not found", container, filepath.Base(folder))
		http.Error(w, said, http.StatusBadRequest)
		return
	}
	defer file.Close()
	if tail, err := strconv.Atoi(query.Get("tailLines")); err == nil {
		skip(file, tail)
	}
	left := int64(1 << 62)
	if limit, err := strconv.ParseInt(query.Get("limitBytes"), 10, 64); err == nil {
		left = limit
	}
	for left > 0 {
		_, problem := os.Stat(filepath.Join(folder, container+".ended"))
		copied, err := io.Copy(w, io.LimitReader(file, left)) // what was there when it had ended is read after that
		left -= copied
		if err != nil || query.Get("follow") != "true" || problem == nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(look):
		}
	}
}

// skip moves to the last lines of a file.
func skip(file *os.File, lines int) {
	data, _ := io.ReadAll(file)
	begin := len(data)
	for ; lines > 0 && begin > 0; lines-- {
		begin = bytes.LastIndexByte(data[:begin-1], '\n') + 1
	}
	_, _ = file.Seek(int64(begin), io.SeekStart)
}

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: kubelet FOLDER AUTHORITY CERTIFICATE KEY")
	}
	authority, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	certificate, err := tls.LoadX509KeyPair(os.Args[3], os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	k := kubelet{os.Args[1]}
	served := http.NewServeMux()
	served.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	served.HandleFunc("/portForward/{namespace}/{pod}", k.portForward)
	served.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	server := http.Server{Handler: served, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    trusted,
		NextProtos:   []string{"http/1.1"}, // HTTP/2 has no upgrades
	}}
	log.Fatal(server.ServeTLS(listener, "", ""))
}
