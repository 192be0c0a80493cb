"""A Flask application whose jobs see the application's configuration."""

from flask import Flask, Response, current_app, jsonify, request

from windlass import JobNotFound
from windlass.contrib.flask import FlaskQueue

queue = FlaskQueue()


@queue.job(max_attempts=3)
def confirm(number: int, email: str) -> str:
    """Tell the customer, from the shop's own address."""
    return f"{current_app.config['SENDER']} confirms order {number} to {email}"


def create_app() -> Flask:
    """The application factory."""
    app = Flask(__name__)
    app.config.update(WINDLASS_DATABASE_URL="sqlite:///jobs.db", SENDER="shop@example.org")
    queue.init_app(app)
    app.add_url_rule("/orders", view_func=place, methods=["POST"])
    app.add_url_rule("/jobs/<name>", view_func=look)
    return app


def place() -> tuple[Response, int]:
    """Accept an order."""
    order = request.get_json()
    job = confirm.options(key=f"order:{order['number']}").enqueue(order["number"], order["email"])
    return jsonify(job=job.id), 202


def look(name: str) -> tuple[Response, int]:
    """What became of a job."""
    try:
        return jsonify(state=queue.get(name).state.value), 200
    except JobNotFound as error:
        return jsonify(error=str(error)), 404


app = create_app()
