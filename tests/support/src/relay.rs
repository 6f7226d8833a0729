//! TCP relay to a daemon, to interrupt the connections of clients.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use super::Daemon;

/// Forwards connections to a daemon, and can cut them.
pub struct Relay {
    pub endpoint: String,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    pub fn to(daemon: &Daemon) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let target = daemon.address().to_owned();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let forwarded = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                // Without a daemon, the client's connection is closed.
                let Ok(daemon) = TcpStream::connect(&target) else { continue };
                let mut forwarded = forwarded.lock().unwrap();
                forwarded.push(client.try_clone().unwrap());
                forwarded.push(daemon.try_clone().unwrap());
                forward(client.try_clone().unwrap(), daemon.try_clone().unwrap());
                forward(daemon, client);
            }
        });
        Self { endpoint, connections }
    }

    pub fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        _ = io::copy(&mut from, &mut to);
        _ = to.shutdown(Shutdown::Both);
    });
}
